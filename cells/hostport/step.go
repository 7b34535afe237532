package hostport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nft"
)

// ErrNotStarted is returned by a step that is not started.
var ErrNotStarted = fault.New(fault.Unavailable, "host ports are not started")

// Step is the part of host ports in an endpoint's life. Attach needs the endpoint's addresses and its host end: it
// comes after link. Before datapath brings the host end up, nothing reaches the pod.
type Step struct {
	log *slog.Logger

	mu        sync.Mutex // guards the fields below; held while the table is written
	namespace *os.File   // nil unless started
	owner     *nft.Owner
	cleaner   *cleaner
	claims    claims
	pruned    bool // everything is restored
}

var (
	_ endpoint.Step     = (*Step)(nil)
	_ endpoint.Pruner   = (*Step)(nil)
	_ endpoint.Occupier = (*Step)(nil)
)

// New returns a step that is not started.
func New(log *slog.Logger) *Step { return &Step{log: log} }

// Start reads what a previous agent has left, in the network namespace of the calling thread, where the ports are.
func (s *Step) Start(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace != nil {
		return nil
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("start host ports: %w", err)
	}
	owner := nft.New(namespace, table, s.log)
	previous, err := owner.Read()
	if err != nil && !errors.Is(err, ErrUnsupported) { // then an ADD that asks for a port says so
		return errors.Join(fmt.Errorf("start host ports: %w", err), owner.Close(), namespace.Close())
	}
	s.namespace, s.owner, s.cleaner = namespace, owner, newCleaner(namespace, s.log)
	s.pruned = false
	s.claims = claims{byAttachment: map[endpoint.Attachment]claim{}, previous: portsOf(previous), held: map[endpoint.Attachment][]netip.Addr{}}
	return nil
}

// Stop leaves everything in the kernel.
func (s *Step) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return nil
	}
	err := errors.Join(s.owner.Close(), s.namespace.Close())
	s.namespace, s.owner = nil, nil
	return err
}

// Name implements endpoint.Step.
func (s *Step) Name() string { return "hostport" }

// Attach implements endpoint.Step. It fails with [ErrTaken] when another endpoint has one of the ports.
func (s *Step) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if ep.Spec.PortMappings == "" {
		return ep, ctx.Err()
	}
	mine, err := newClaim(ep)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return ep, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return ep, ErrNotStarted
	}
	if err := s.claims.take(mine); err != nil {
		return ep, err
	}
	if err := s.writeLocked(); err != nil {
		return ep, err
	}
	if mine.hasProtocol(unix.IPPROTO_SCTP) {
		if err := checkSCTP(s.namespace); err != nil {
			return ep, err
		}
	}
	if mine.usesLoopback() {
		if err := allowLoopback(s.namespace, ep); err != nil {
			return ep, err
		}
	}
	s.cleaner.atAttach(mine.ports)
	return ep, nil
}

// Restore implements endpoint.Step. At a start the table is written when all endpoints are restored, by Prune: until
// then what a previous agent has left is right.
func (s *Step) Restore(ctx context.Context, ep endpoint.Endpoint) (replaced []string, err error) {
	if ep.Spec.PortMappings == "" {
		return nil, nil
	}
	mine, err := newClaim(ep)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return nil, ErrNotStarted
	}
	if replaced, err = s.missing(mine); err != nil {
		return nil, err
	}
	s.claims.restore(mine)
	if s.pruned {
		if err := s.writeLocked(); err != nil {
			return nil, err
		}
	}
	if mine.usesLoopback() && !hasLoopback(s.namespace, ep) {
		replaced = append(replaced, fmt.Sprintf("route_localnet of %s: off", ep.Host.Name))
		return replaced, allowLoopback(s.namespace, ep)
	}
	return replaced, nil
}

// missing names the ports of a claim that the table lacks. A port that leads elsewhere may be the one of the pod's next
// life.
func (s *Step) missing(mine claim) (list []string, err error) {
	have, err := s.owner.Read()
	if err != nil {
		return nil, err
	}
	found := portsOf(have)
	for p := range mine.ports {
		if _, ok := found[p]; !ok {
			list = append(list, fmt.Sprintf("host port %s: missing", p))
		}
	}
	slices.Sort(list)
	return list, nil
}

// Detach implements endpoint.Step. An incomplete endpoint loses its ports, too: it does not answer there any more.
func (s *Step) Detach(_ context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return ErrNotStarted
	}
	before := len(s.claims.previous)
	released := s.claims.release(ep)
	if len(released) == 0 && before == len(s.claims.previous) && s.owner.Err() == nil {
		return nil
	}
	if err := s.writeLocked(); err != nil {
		return err
	}
	s.cleaner.atDetach(released)
	return nil
}

// Occupy implements endpoint.Occupier. The ports of an endpoint that only the kernel knows stay what they are.
func (s *Step) Occupy(ep endpoint.Endpoint) error {
	mine, err := newClaim(ep)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return ErrNotStarted
	}
	s.claims.held[ep.Spec.Attachment] = ep.Addresses.List()
	if len(mine.ports) > 0 {
		s.claims.restore(mine)
	}
	return nil
}

// Prune implements endpoint.Pruner.
func (s *Step) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return nil, ErrNotStarted
	}
	removed = s.claims.prune(live)
	slices.Sort(removed)
	if err := s.writeLocked(); err != nil {
		return removed, err
	}
	s.pruned = true
	return removed, nil
}

func (s *Step) writeLocked() error {
	if err := s.owner.Apply(s.claims.state()); err != nil {
		return fmt.Errorf("write the table of host ports: %w", err)
	}
	return nil
}

// Follow restores the table when another program has changed it, until ctx ends.
func (s *Step) Follow(ctx context.Context) error {
	s.mu.Lock()
	owner := s.owner
	s.mu.Unlock()
	if owner == nil {
		return ErrNotStarted
	}
	return owner.Run(ctx)
}

func (s *Step) repair() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return ErrNotStarted
	}
	return s.owner.Repair()
}

// compare returns the differences of the table, and the endpoints whose host end does not let packets of 127.0.0.0/8
// through. Of one attachment, when only names it, these are the ports that the table lacks, and its own host end.
func (s *Step) compare(only string) (differences []string, withoutLoopback []endpoint.Endpoint, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return nil, nil, ErrNotStarted
	}
	if only == "" {
		differences, err = s.owner.Compare()
	}
	for attachment, c := range s.claims.byAttachment {
		if only != "" && attachment.String() != only {
			continue
		}
		if c.usesLoopback() && !hasLoopback(s.namespace, c.ep) {
			withoutLoopback = append(withoutLoopback, c.ep)
		}
		if only != "" {
			differences, err = s.missing(c)
		}
	}
	return differences, withoutLoopback, err
}

// Ports is how many ports lead to pods, by protocol.
func (s *Step) Ports() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := maps.Clone(s.claims.previous)
	for _, c := range s.claims.byAttachment {
		maps.Copy(all, c.ports)
	}
	counts := map[string]int{}
	for p := range all {
		counts[protocolNames[p.protocol]]++
	}
	return counts
}

func newCollector(s *Step) *metrics.Values {
	v := metrics.NewValues("porin_hostport_")
	ports := v.Gauge("ports", "Ports of the node that lead to pods; one of both families counts twice.", "protocol")
	v.Read = func(ch chan<- prometheus.Metric) {
		counts := s.Ports()
		for _, protocol := range []string{v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP} {
			ports.Send(ch, float64(counts[protocol]), protocol)
		}
	}
	return v
}
