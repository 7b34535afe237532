package nodecheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// Item is a thing on a node. Two items of the same name are the same thing in the same condition.
type Item struct{ Kind, Name string }

// Finding is an item that is there and should not be, or is not there and should be.
type Finding struct {
	Item
	Problem string // "left" or "missing"
}

func (f Finding) String() string { return fmt.Sprintf("%s is %s: %s", f.Kind, f.Problem, f.Name) }

// Want is what a runtime knows of the node.
type Want struct {
	Live []Pod
	// Maybe are attachments ("containerID:ifname") that an interrupted call left undecided: each is there as a whole, or
	// gone as a whole.
	Maybe []string
	// Others are the other nodes that there are, and Peers the checkers of those with an agent, which says what they have.
	// These are not on a link of the node.
	Others []OtherNode
	Peers  []*Checker
}

// Checker looks at one node.
type Checker struct {
	node *testutil.Node
	api  *client.Client
}

// New returns a checker that works until the end of the test.
func New(t testing.TB, node *testutil.Node) *Checker {
	t.Helper()
	api := client.New(node.Socket)
	t.Cleanup(api.Close)
	return &Checker{node: node, api: api}
}

// Look compares once. It needs an agent that answers.
func (c *Checker) Look(want Want) ([]Finding, error) {
	a, err := c.ask()
	if err != nil {
		return nil, err
	}
	defer c.api.Close() // the agent may not be the same the next time
	peers, err := offLinkNodes(want.Peers)
	if err != nil {
		return nil, err
	}
	want.Others = slices.Concat(want.Others, peers)
	kernel, err1 := c.kernelItems()
	maps, err2 := c.mapItems()
	pins, err3 := c.pinItems()
	files, err4 := c.fileItems()
	policies, err5 := c.policyItems(want)
	paths, err6 := c.pathItems(a.hasTunnel())
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, err
	}
	findings := compare(want.items(), a.endpointItems(want))
	findings = append(findings, compare(a.addressesDue(), a.addressItems())...)
	findings = append(findings, compare(a.kernelDue(), kernel)...)
	findings = append(findings, compare(a.mapsDue(), maps)...)
	findings = append(findings, compare(append(a.policiesDue(), want.classesDue()...), policies)...)
	findings = append(findings, compare(a.pathsDue(want), paths)...)
	findings = append(findings, compare(a.pinsDue(), pins)...)
	findings = append(findings, compare(nil, files)...)
	return append(findings, a.doctorFindings()...), nil
}

// Within looks until all is as it should be, and returns what is not so after the time. Some of what goes does so
// right after an answer: links in the kernel, deletion records once the agent serves.
func (c *Checker) Within(timeout time.Duration, want Want) (findings []Finding, err error) {
	deadline := time.Now().Add(timeout)
	for {
		findings, err = c.Look(want)
		if err == nil && len(findings) == 0 || time.Now().After(deadline) {
			return findings, err
		}
		time.Sleep(lookAgain)
	}
}

// lookAgain is the time between two looks.
const lookAgain = 5 * time.Millisecond

// compare returns the differences, in an order that does not change.
func compare(want, found []Item) (findings []Finding) {
	count := map[Item]int{}
	for _, item := range want {
		count[item]--
	}
	for _, item := range found {
		count[item]++
	}
	for item, n := range count {
		switch {
		case n > 0:
			findings = append(findings, Finding{item, "left"})
		case n < 0:
			findings = append(findings, Finding{item, "missing"})
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return findings
}
