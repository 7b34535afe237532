package probe

import (
	"fmt"
	"slices"
	"strings"

	"porin.dev/porin/cells/cluster"
)

// Status is how a node is, as far as this one can tell.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Failing Status = "failing"
	Unknown Status = "unknown" // it was not probed yet
)

// Result is what is known of a node.
type Result struct {
	Node   cluster.NodeID
	Status Status
	Faults []Fault
	States States
}

// Nodes returns what is known of each of the peers, by name.
func (p *Prober) Nodes() []Result {
	peers := p.peers.Peers()
	results := make([]Result, 0, len(peers))
	p.mu.Lock()
	for _, n := range peers {
		r := Result{Node: n.Node, Status: Unknown}
		if states := p.states[n.Node]; states != nil {
			r.States = *states
		}
		results = append(results, r)
	}
	p.mu.Unlock()
	for i := range results {
		r := &results[i]
		if slices.ContainsFunc(r.States[:], State.Failing) {
			r.Status, r.Faults = Failing, Diagnose(peers[i], &r.States)
		} else if slices.ContainsFunc(r.States[:], State.Probed) {
			r.Status = OK
		}
	}
	slices.SortFunc(results, func(x, y Result) int { return strings.Compare(x.Node.String(), y.Node.String()) })
	return results
}

// Counts returns how many of the peers have which status.
func (p *Prober) Counts() map[Status]int {
	counts := map[Status]int{OK: 0, Failing: 0, Unknown: 0}
	for _, r := range p.Nodes() {
		counts[r.Status]++
	}
	return counts
}

// otherNode is [ErrOtherNode] with the name, which anybody may have chosen.
func otherNode(name string) error { return fmt.Errorf("%w: %.64q", ErrOtherNode, name) }
