package endpointtest

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// simpleStep is a step that gives each endpoint an address, with all optional interfaces. Its defect is what a test
// wants to be found.
type simpleStep struct {
	defect string

	mu  sync.Mutex // guards the fields below
	has map[endpoint.Attachment]endpoint.Endpoint
}

func (s *simpleStep) Name() string { return "simple" }

func (s *simpleStep) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, again := s.has[ep.Spec.Attachment]
	switch {
	case again && s.defect == "refuses a second Attach":
		return ep, context.Canceled
	case s.defect == "changes the Spec":
		ep.Spec.MTU = 1400
	case again:
		ep.Addresses = before.Addresses
	}
	if !again || s.defect == "gives another address" {
		ep.Addresses.IPv4 = s.freeLocked(ep.ID)
	}
	if s.defect == "leaks when the context ends" && ctx.Err() != nil {
		s.has[endpoint.Attachment{ContainerID: "leak-" + ep.Spec.Attachment.ContainerID, IfName: "eth0"}] = ep
		return ep, ctx.Err()
	}
	s.has[ep.Spec.Attachment] = ep
	return ep, ctx.Err()
}

func (s *simpleStep) freeLocked(id uint16) netip.Addr {
	for i := byte(1); ; i++ {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(id), i})
		if s.defect == "gives what is occupied" {
			return netip.AddrFrom4([4]byte{10, 0, 0, 1})
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(s.has)), func(ep endpoint.Endpoint) bool { return ep.Addresses.IPv4 == addr }) {
			return addr
		}
	}
}

func (s *simpleStep) Detach(_ context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.has[ep.Spec.Attachment]
	switch {
	case s.defect == "refuses what it does not know" && !known:
		return context.Canceled
	case s.defect == "needs what it added" && !ep.Addresses.IPv4.IsValid(), s.defect == "needs the number" && s.has[ep.Spec.Attachment].ID != ep.ID:
		return nil
	case s.defect == "detaches everybody":
		clear(s.has)
	}
	delete(s.has, ep.Spec.Attachment)
	return nil
}

func (s *simpleStep) Restore(_ context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.defect == "always replaces" {
		replaced = []string{"all"}
	}
	s.has[ep.Spec.Attachment] = ep
	return replaced, nil
}

func (s *simpleStep) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.has {
		alive := slices.ContainsFunc(live, func(ep endpoint.Endpoint) bool { return ep.Spec.Attachment == a })
		if alive && s.defect != "prunes what is alive" || s.defect == "prunes nothing" {
			continue
		}
		delete(s.has, a)
		removed = append(removed, a.String())
	}
	return removed, nil
}

func (s *simpleStep) Renew(_ context.Context, ep endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.defect != "does not renew" {
		s.has[ep.Spec.Attachment] = ep
	}
	return nil
}

func (s *simpleStep) Update(_ context.Context, ep endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has[ep.Spec.Attachment] = ep
	if s.defect == "forgets what it updates" {
		delete(s.has, ep.Spec.Attachment)
	}
	return nil
}

func (s *simpleStep) Find(_ context.Context, found []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.defect == "loses what was found" {
		return nil, nil
	}
	return slices.AppendSeq(found, maps.Values(s.has)), nil
}

func (s *simpleStep) Survey(_ context.Context, eps []endpoint.Endpoint) (map[endpoint.Attachment]error, error) {
	if s.defect == "says that all is lost" {
		return map[endpoint.Attachment]error{eps[0].Spec.Attachment: context.Canceled}, nil
	}
	return nil, nil
}

func (s *simpleStep) Occupy(ep endpoint.Endpoint) error {
	_, err := s.Restore(context.Background(), ep)
	return err
}

func (s *simpleStep) Remember(deletions []endpoint.Deletion) {
	if s.defect == "brings back what is remembered" {
		_, _ = s.Restore(context.Background(), deletions[1].Endpoint)
	}
}

func newSimpleStep(defect string) Subject {
	s := &simpleStep{defect: defect, has: map[endpoint.Attachment]endpoint.Endpoint{}}
	return Subject{Step: s, Has: func(_ testing.TB, ep endpoint.Endpoint) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for a := range s.has {
			if a == ep.Spec.Attachment || a.ContainerID == "leak-"+ep.Spec.Attachment.ContainerID {
				return true
			}
		}
		return false
	}}
}

func TestStepPasses(t *testing.T) {
	TestStep(t, func(*testing.T) Subject { return newSimpleStep("") })
}

func TestStepFindsDefects(t *testing.T) {
	for _, row := range []struct{ check, defect string }{
		{"attach", "changes the Spec"},
		{"attach again", "gives another address"},
		{"attach again", "refuses a second Attach"},
		{"detach again", "refuses what it does not know"},
		{"detach without attach", "detaches everybody"},
		{"detach after partial attach", "leaks when the context ends"},
		{"detach without what was added", "needs what it added"},
		{"detach without endpoint", "needs the number"},
		{"detach incomplete", "refuses what it does not know"},
		{"detach with ended context", "refuses what it does not know"},
		{"restore", "always replaces"},
		{"restore after restart", "always replaces"},
		{"concurrent endpoints", "detaches everybody"},
		{"prune", "prunes what is alive"},
		{"prune", "prunes nothing"},
		{"renew", "does not renew"},
		{"update", "forgets what it updates"},
		{"find", "loses what was found"},
		{"survey", "says that all is lost"},
		{"occupy", "gives what is occupied"},
		{"remember", "brings back what is remembered"},
	} {
		t.Run(row.check+" "+row.defect, func(t *testing.T) {
			for _, c := range stepChecks {
				if c.name != row.check {
					continue
				}
				if said := failuresOf(t, func(t testing.TB) { c.run(t, newSimpleStep(row.defect)) }); len(said) == 0 {
					t.Errorf("the test %q passes", row.check)
				}
			}
		})
	}
}
