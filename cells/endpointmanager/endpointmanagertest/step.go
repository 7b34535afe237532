// Package endpointmanagertest has the doubles that tests of and around the manager use.
package endpointmanagertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"porin.dev/porin/cells/endpoint"
)

// Step is a step without a kernel: it remembers who is attached, as the kernel would across restarts of the agent,
// and fails when told to.
type Step struct {
	name string

	mu       sync.Mutex // guards the fields below
	attached map[endpoint.Attachment]endpoint.Endpoint
	failures map[string]failure
	hold     chan struct{}
	next     uint16
	log      []string
	unlinked map[endpoint.Attachment]bool
	given    endpoint.Addresses // for all endpoints; none when each gets its own
}

type failure struct {
	times int
	err   error
}

// NewStep returns a step without attachments.
func NewStep(name string) *Step {
	return &Step{
		name:     name,
		attached: map[endpoint.Attachment]endpoint.Endpoint{},
		failures: map[string]failure{},
		unlinked: map[endpoint.Attachment]bool{},
	}
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return s.name }

// Attach implements endpoint.Step. The step called "ipam" gives out addresses, to an attachment the same ones until its
// Detach.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if err := s.wait(ctx); err != nil {
		return ep, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("attach", ep); err != nil {
		return ep, err
	}
	if s.name == "ipam" {
		ep.Addresses = s.addressesFor(ep.Spec.Attachment)
	}
	s.attached[ep.Spec.Attachment] = ep
	delete(s.unlinked, ep.Spec.Attachment)
	return ep, nil
}

// addressesFor expects the lock.
func (s *Step) addressesFor(a endpoint.Attachment) endpoint.Addresses {
	if before, ok := s.attached[a]; ok {
		return before.Addresses
	}
	if s.given != (endpoint.Addresses{}) {
		return s.given
	}
	s.next++
	return endpoint.Addresses{IPv4: netip.AddrFrom4([4]byte{10, 0, byte(s.next >> 8), byte(s.next)})}
}

// Detach implements endpoint.Step.
func (s *Step) Detach(_ context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	what := "detach"
	if cfg.NoIPRelease {
		what += "(NoIPRelease)"
	}
	if cfg.Incomplete {
		what += "(Incomplete)"
	}
	s.log = append(s.log, fmt.Sprintf("%s %s %s", s.name, what, ep.Spec.Attachment))
	if err := s.fail("detach"); err != nil {
		return err
	}
	if !cfg.Incomplete {
		delete(s.attached, ep.Spec.Attachment)
	}
	return nil
}

// Restore implements endpoint.Step.
func (s *Step) Restore(_ context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("restore", ep); err != nil {
		return nil, err
	}
	if _, ok := s.attached[ep.Spec.Attachment]; !ok {
		replaced = []string{s.name + " was not there"}
	}
	s.attached[ep.Spec.Attachment] = ep
	return replaced, nil
}

// Update implements endpoint.Updater.
func (s *Step) Update(_ context.Context, ep endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("update", ep); err != nil {
		return err
	}
	s.attached[ep.Spec.Attachment] = ep
	return nil
}

// Survey implements endpointmanager.Surveyor: lost is what [Step.Unlink] has taken away.
func (s *Step) Survey(_ context.Context, eps []endpoint.Endpoint) (map[endpoint.Attachment]error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := map[endpoint.Attachment]error{}
	for _, ep := range eps {
		if s.unlinked[ep.Spec.Attachment] {
			lost[ep.Spec.Attachment] = errors.New("no such link")
		}
	}
	return lost, s.fail("survey")
}

// Find implements endpointmanager.Finder: the step called "datapath" knows the link of whoever is attached, and its
// addresses.
func (s *Step) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == "datapath" {
		for _, ep := range s.attached {
			link := WithLink(endpoint.Endpoint{ID: ep.ID, Spec: endpoint.Spec{Attachment: ep.Spec.Attachment, Began: ep.Spec.Began}}, int(ep.ID))
			link.Addresses = ep.Addresses
			found = append(found, link)
		}
	}
	return found, s.fail("find")
}

// Occupy implements endpoint.Occupier.
func (s *Step) Occupy(ep endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.begin("occupy", ep)
}

// Unlink makes the link of the attachment ("containerID:ifname") go, as if its namespace had ended.
func (s *Step) Unlink(attachment string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.attached {
		if a.String() == attachment {
			s.unlinked[a] = true
			delete(s.attached, a)
		}
	}
}

// Prune implements endpointmanager.Pruner: whoever is attached and not alive is detached.
func (s *Step) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fail("prune"); err != nil {
		return nil, err
	}
	alive := map[endpoint.Attachment]bool{}
	for _, ep := range live {
		alive[ep.Spec.Attachment] = true
	}
	maps.DeleteFunc(s.attached, func(a endpoint.Attachment, _ endpoint.Endpoint) bool {
		if !alive[a] {
			removed = append(removed, s.name+" of "+a.String())
		}
		return !alive[a]
	})
	slices.Sort(removed)
	return removed, nil
}

func (s *Step) begin(what string, ep endpoint.Endpoint) error {
	call := what + " " + ep.Spec.Attachment.String()
	s.log = append(s.log, s.name+" "+call)
	return errors.Join(s.fail(what), s.fail(call))
}

func (s *Step) fail(what string) error {
	f := s.failures[what]
	if f.times == 0 {
		return nil
	}
	f.times--
	s.failures[what] = f
	return f.err
}

// Fail makes the next calls of the method ("attach", "detach", "restore", "prune") fail, so many times: those for one
// endpoint, when the method is followed by its attachment ("restore containerID:ifname").
func (s *Step) Fail(method string, times int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[method] = failure{times, err}
}

// Give makes the step called "ipam" give these addresses to all endpoints from now on, as a faulty step would.
func (s *Step) Give(addresses endpoint.Addresses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.given = addresses
}

// Hold makes Attach wait until the returned function is called or its context ends.
func (s *Step) Hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hold := make(chan struct{})
	s.hold = hold
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hold = nil
		close(hold)
	})
}

func (s *Step) wait(ctx context.Context) error {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	if hold == nil {
		return nil
	}
	select {
	case <-hold:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Lose forgets that the attachment ("containerID:ifname") is attached, as if another program had removed it.
func (s *Step) Lose(attachment string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.attached, func(a endpoint.Attachment, _ endpoint.Endpoint) bool { return a.String() == attachment })
}

// Attached returns who is attached, in order.
func (s *Step) Attached() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for a := range maps.Keys(s.attached) {
		names = append(names, a.String())
	}
	slices.Sort(names)
	return names
}

// Log returns and forgets the calls so far: "ipam attach c1:eth0".
func (s *Step) Log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}
