package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Peers are the other nodes of the cluster.
type Peers interface {
	// Peers returns them, without this node. The caller does not change what it gets.
	Peers() []cluster.NodeNetwork
	// Changed returns a channel that is closed at the next change of them.
	Changed() <-chan struct{}
}

// Transport sends one probe. Both methods return when it is answered or ctx ends.
type Transport interface {
	// Ping asks for an ICMP echo.
	Ping(ctx context.Context, addr netip.Addr) (time.Duration, error)
	// Hello asks a health endpoint by HTTP which node it is of.
	Hello(ctx context.Context, addr netip.Addr) (node string, latency time.Duration, err error)
}

// Port is the TCP port of every health endpoint, which answers HTTP there.
const Port = 4240

// HelloPath is the path of [Transport.Hello].
const HelloPath = "/hello"

// Answer is the body of a health endpoint's answer.
type Answer struct {
	Node string `json:"node"`
}

// The faults of a probe that say more than that there was no answer.
var (
	ErrTimeout   = errors.New("no answer in time")
	ErrRefused   = errors.New("connection refused")
	ErrAnswer    = errors.New("not the answer of a health endpoint")
	ErrOtherNode = errors.New("another node answers")
	// ErrNoSource is returned when this node has no address of the family to ask from: that is no path, and no failure.
	ErrNoSource = errors.New("this node has no address of that family")
)

// Config says how often and how many.
type Config struct {
	Interval time.Duration // of the rounds
	Timeout  time.Duration // of one try; a probe has two
	Sample   int           // nodes of a round, at the most
	Parallel int           // nodes that are probed at the same time
}

// DefaultConfig is what a node runs with unless told otherwise.
func DefaultConfig() Config {
	return Config{Interval: time.Minute, Timeout: 2 * time.Second, Sample: 200, Parallel: 32}
}

const (
	// tries is how many a probe has: one lost packet is no failure.
	tries = 2
	// firstRound is how many times as fast as later ones the first round is.
	firstRound = 6
	// newcomerGap is between the first probes of nodes that have come.
	newcomerGap = 50 * time.Millisecond
)

// Observe is told of each probe. It does not block.
type Observe func(path Path, latency time.Duration, err error)

// Prober probes the other nodes. Its methods may be called concurrently, Run once.
type Prober struct {
	cfg       Config
	peers     Peers
	transport Transport
	observe   Observe
	sampler   sampler // of Run

	mu     sync.Mutex // guards the field below
	states map[cluster.NodeID]*States
}

// New returns a prober that does nothing until Run. A nil observe is none.
func New(cfg Config, peers Peers, transport Transport, observe Observe) *Prober {
	if observe == nil {
		observe = func(Path, time.Duration, error) {}
	}
	return &Prober{
		cfg: cfg, peers: peers, transport: transport, observe: observe, states: map[cluster.NodeID]*States{},
		sampler: sampler{rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))},
	}
}

// turn is when a node is to be probed.
type turn struct {
	node cluster.NodeID
	due  time.Time
}

// Run probes until ctx ends, and returns its error when no probe runs any more.
func (p *Prober) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, p.cfg.Parallel)
	interval := p.cfg.Interval / firstRound // of the first round alone: who starts wants to know soon
	changed := p.peers.Changed()
	peers := p.refresh()
	queue, end := p.plan(peers, interval)
	for {
		due := end
		if len(queue) > 0 {
			due = queue[0].due
		}
		timer := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
			timer.Stop()
			changed = p.peers.Changed()
			peers = p.refresh()
			queue = p.admit(queue, peers)
			continue
		case <-timer.C:
		}
		if len(queue) == 0 {
			interval = p.cfg.Interval
			queue, end = p.plan(peers, interval)
			continue
		}
		next, ok := peers[queue[0].node]
		queue = queue[1:]
		if !ok {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		running.Go(func() {
			defer func() { <-slots }()
			p.probe(ctx, next)
		})
	}
}

// refresh reads the peers, and removes the peers of deleted nodes.
func (p *Prober) refresh() map[cluster.NodeID]cluster.NodeNetwork {
	peers := map[cluster.NodeID]cluster.NodeNetwork{}
	for _, n := range p.peers.Peers() {
		peers[n.Node] = n
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.states {
		if _, ok := peers[id]; !ok {
			delete(p.states, id)
		}
	}
	return peers
}

// plan spreads a round over the interval. The nodes that failed last come again, as many of them as a sample has.
func (p *Prober) plan(peers map[cluster.NodeID]cluster.NodeNetwork, interval time.Duration) (queue []turn, end time.Time) {
	now := time.Now()
	all := make([]cluster.NodeID, 0, len(peers))
	for id := range peers {
		all = append(all, id)
	}
	chosen := p.sampler.take(all, p.cfg.Sample)
	if len(chosen) < len(all) {
		chosen = p.withFailing(chosen)
	}
	gap := interval / time.Duration(max(len(chosen), 1))
	for i, id := range chosen {
		jitter := time.Duration(p.sampler.rand.Int64N(int64(gap) + 1))
		queue = append(queue, turn{id, now.Add(time.Duration(i)*gap + jitter)})
	}
	return queue, now.Add(interval)
}

func (p *Prober) withFailing(chosen []cluster.NodeID) []cluster.NodeID {
	has := map[cluster.NodeID]bool{}
	for _, id := range chosen {
		has[id] = true
	}
	var failing []cluster.NodeID
	p.mu.Lock()
	for id, states := range p.states {
		if !has[id] && slices.ContainsFunc(states[:], State.Failing) {
			failing = append(failing, id)
		}
	}
	p.mu.Unlock()
	failing = p.sampler.shuffled(failing)
	return p.sampler.shuffled(append(chosen, failing[:min(len(failing), p.cfg.Sample)]...))
}

// admit schedules new nodes, and nodes with a new health endpoint, for a probe soon, as many of them as a sample has.
func (p *Prober) admit(queue []turn, peers map[cluster.NodeID]cluster.NodeNetwork) []turn {
	known := map[cluster.NodeID]bool{}
	for _, t := range queue {
		known[t.node] = true
	}
	p.mu.Lock()
	for id, states := range p.states {
		known[id] = known[id] || !states.misses(peers[id])
	}
	p.mu.Unlock()
	due, room := time.Now(), p.cfg.Sample-len(queue)
	for id := range peers {
		if !known[id] && room > 0 {
			queue = append(queue, turn{id, due})
			due, room = due.Add(newcomerGap), room-1
		}
	}
	slices.SortStableFunc(queue, func(x, y turn) int { return x.due.Compare(y.due) })
	return queue
}

// probe probes all paths of a node side by side.
func (p *Prober) probe(ctx context.Context, n cluster.NodeNetwork) {
	p.mu.Lock()
	if p.states[n.Node] == nil {
		p.states[n.Node] = &States{}
	}
	p.mu.Unlock()
	var paths sync.WaitGroup
	for i, path := range Paths() {
		addr := path.addressOf(n)
		if !addr.IsValid() {
			p.record(n.Node, i, addr, 0, nil)
			continue
		}
		paths.Go(func() {
			latency, err := p.try(ctx, path, n.Node.Name, addr)
			if ctx.Err() != nil {
				return // the probe did not fail: it was given up
			}
			if errors.Is(err, ErrNoSource) {
				p.record(n.Node, i, netip.Addr{}, 0, nil)
				return
			}
			p.record(n.Node, i, addr, latency, err)
			p.observe(path, latency, err)
		})
	}
	paths.Wait()
}

// record records the result of a path, from scratch for another address; the zero Addr is no path.
func (p *Prober) record(node cluster.NodeID, path int, addr netip.Addr, latency time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	states := p.states[node]
	if states == nil {
		return // it is gone meanwhile
	}
	if states[path].Address != addr {
		states[path] = State{Address: addr}
	}
	if addr.IsValid() {
		states[path].record(time.Now(), latency, err)
	}
}

func (p *Prober) try(ctx context.Context, path Path, node string, addr netip.Addr) (latency time.Duration, err error) {
	for range tries {
		if latency, err = p.once(ctx, path, node, addr); err == nil || ctx.Err() != nil {
			break
		}
	}
	return latency, err
}

func (p *Prober) once(ctx context.Context, path Path, node string, addr netip.Addr) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	if path.Protocol == ICMP {
		return p.transport.Ping(ctx, addr)
	}
	name, latency, err := p.transport.Hello(ctx, addr)
	if err == nil && name != node {
		err = otherNode(name)
	}
	return latency, err
}
