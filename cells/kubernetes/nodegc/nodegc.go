// Package nodegc deletes the records of nodes whose Kubernetes Node is gone. It does what porin node delete does.
//
//	porin cluster node gc --> [Collector] --> Nodes and pods at the API server
//	                               '--------> cells/cluster/admin --> records
package nodegc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/task"
)

// Collector deletes records in one run.
type Collector struct {
	Core    rest.Interface // for the group "", in protobuf
	Backend cluster.Backend
	Nodes   *admin.Nodes
	Wait    time.Duration // between the two rounds
	DryRun  bool          // deletes nothing
}

// Outcome says what a run did with the records of a node.
type Outcome string

// The outcomes.
const (
	Deleted     Outcome = "deleted"
	WouldDelete Outcome = "would be deleted"
	Kept        Outcome = "kept"
	Failed      Outcome = "failed"
)

// Result is one incarnation of a node that has no Node.
type Result struct {
	Name    string  `json:"name"`
	Key     string  `json:"key"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
}

// ErrRecovery is returned while a recovery is under way: agents are writing their records again.
var ErrRecovery = errors.New("a recovery is under way: nothing is deleted before its end (porin ipam recover)")

const (
	callTimeout = 30 * time.Second
	pageSize    = 500
)

// Run makes two rounds with Wait between them. It deletes the records that both find to be of no Node, if they have not
// changed meanwhile. Before each deletion it makes another round, because a deletion can take as long as the quarantine
// of a pool. It returns what it has done also with an error.
func (c *Collector) Run(ctx context.Context) (results []Result, err error) {
	first, err := c.round(ctx)
	if err != nil {
		return nil, err
	}
	now := first
	if slices.ContainsFunc(slices.Collect(maps.Values(first)), func(f finding) bool { return f.gone != "" }) {
		if err := task.Sleep(ctx, c.Wait); err != nil {
			return nil, err
		}
		now, err = c.round(ctx)
	}
	handled := map[cluster.NodeID]bool{}
	for next, found := nextGone(first, now, handled); found && err == nil; next, found = nextGone(first, now, handled) {
		handled[next] = true
		result := Result{next.Name, next.Key, Deleted, now[next].gone}
		if c.DryRun {
			result.Outcome = WouldDelete
		} else if err := c.Nodes.Delete(ctx, next, true); err != nil {
			result.Outcome, result.Reason = Failed, err.Error()
		}
		results = append(results, result)
		if !c.DryRun {
			now, err = c.round(ctx)
		}
	}
	if err != nil {
		return results, err
	}
	for id, f := range now {
		if !handled[id] {
			results = append(results, Result{id.Name, id.Key, Kept, cmp.Or(f.kept, "its records, or its Node, have changed between the rounds")})
		}
	}
	slices.SortFunc(results, func(a, b Result) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Key, b.Key))
	})
	return results, nil
}

// finding is a round's view of an incarnation whose Node is not at the API server.
type finding struct {
	gone    string // why its records can be deleted; "" when they stay
	kept    string // why they stay
	version string // of its records
}

// nextGone returns an incarnation that is gone in both rounds, with the same records.
func nextGone(first, now map[cluster.NodeID]finding, handled map[cluster.NodeID]bool) (id cluster.NodeID, found bool) {
	byName := func(a, b cluster.NodeID) int { return strings.Compare(a.String(), b.String()) }
	for _, id := range slices.SortedFunc(maps.Keys(now), byName) {
		if before := first[id]; !handled[id] && now[id].gone != "" && before.gone != "" && before.version == now[id].version {
			return id, true
		}
	}
	return id, false
}

// round compares the records with the Nodes. It reads the records first: a Node is older than the records of its agent.
func (c *Collector) round(ctx context.Context) (map[cluster.NodeID]finding, error) {
	info, _, err := c.Backend.Info.Get(ctx)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return nil, err
	}
	if info.Recovery != nil {
		return nil, ErrRecovery
	}
	records, err := c.Nodes.List(ctx)
	if err != nil {
		return nil, err
	}
	present, err := c.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	running := map[string]string{} // the keys of incarnations whose agents have written the UID of the present Node
	for _, r := range records {
		if uid, exists := present[r.Node.ID.Name]; exists && slices.Contains(uidsOf(r), uid) {
			running[r.Node.ID.Name] = r.Node.ID.Key
		}
	}
	findings := map[cluster.NodeID]finding{}
	for _, r := range records {
		id := r.Node.ID
		f := finding{version: versionOf(r)}
		uid, exists := present[id.Name]
		switch {
		case r.Node.State == admin.NodeUnreadable: // its name may be a hash
			f.kept = "its record cannot be read"
		case exists && (len(uidsOf(r)) == 0 || slices.Contains(uidsOf(r), uid)):
			continue
		case exists && running[id.Name] == "":
			f.kept = "its Node was created again, and no agent has written records with the new UID"
		case exists:
			f.gone = fmt.Sprintf("its Node was created again, and the agent of the new one has the key %s", running[id.Name])
		default:
			pod, err := c.boundPod(ctx, id.Name)
			if err != nil {
				return nil, err
			}
			if f.gone = "there is no Node " + id.Name; pod != "" {
				f.gone, f.kept = "", "there is no Node, and pod "+pod+" is bound to it"
			}
		}
		findings[id] = f
	}
	return findings, nil
}

// uidsOf returns the UIDs of Nodes in the records of an incarnation: none if its agent has written none.
func uidsOf(r admin.NodeStatus) (uids []string) {
	if r.Node.NodeUID != "" {
		uids = append(uids, r.Node.NodeUID)
	}
	if r.Network != nil && r.Network.NodeUID != "" {
		uids = append(uids, r.Network.NodeUID)
	}
	return uids
}

// versionOf changes with each write of an agent.
func versionOf(r admin.NodeStatus) string {
	version := string(r.Node.Version)
	if r.Session != nil {
		version += " " + string(r.Session.Version)
	}
	if r.Network != nil {
		version += " " + string(r.Network.Version)
	}
	return version
}

// listNodes returns the UID of each Node by name.
func (c *Collector) listNodes(ctx context.Context) (map[string]string, error) {
	uids := map[string]string{}
	for next := ""; ; {
		page, err := c.list(ctx, "nodes", "", metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return nil, err
		}
		for _, o := range page.Objects {
			uids[o.Key.Name] = string(o.UID)
		}
		if next = page.Continue; next == "" {
			return uids, nil
		}
	}
}

// boundPod returns NAMESPACE/NAME of a pod that is bound to the node, or "".
func (c *Collector) boundPod(ctx context.Context, node string) (string, error) {
	for next := ""; ; { // a page may be empty before the last one
		page, err := c.list(ctx, "pods", fields.OneTermEqualSelector("spec.nodeName", node).String(), metav1.ListOptions{Limit: 1, Continue: next})
		if err != nil {
			return "", err
		}
		if len(page.Objects) > 0 {
			return page.Objects[0].Key.String(), nil
		}
		if next = page.Continue; next == "" {
			return "", nil
		}
	}
}

// list reads a page of the metadata of objects.
func (c *Collector) list(ctx context.Context, resource, selector string, options metav1.ListOptions) (watch.Page[struct{}], error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	none := func(*metav1.PartialObjectMetadata) (none struct{}) { return none }
	page, err := watch.Metadata(c.Core, resource, selector, none).List(ctx, options)
	if err != nil {
		return page, fmt.Errorf("list %s: %w", resource, err)
	}
	return page, nil
}
