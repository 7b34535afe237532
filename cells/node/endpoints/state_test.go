package endpoints

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
)

// told is what the policies know after some changes. As for them, an address is the endpoint's that was set last.
type told struct {
	endpoints map[string]model.Endpoint
	owners    map[netip.Addr]string // keys
	blocks    map[netip.Prefix]bool
}

// learns is a state with who is told of it.
type learns struct {
	*state
	told
	view node.View
	now  time.Time
}

func newLearns(peers ...node.Peer) *learns {
	l := &learns{state: newState(false), told: told{map[string]model.Endpoint{}, map[netip.Addr]string{}, map[netip.Prefix]bool{}}, now: time.Unix(1000, 0)}
	l.sees(peers...)
	return l
}

// sees has the node know these peers.
func (l *learns) sees(peers ...node.Peer) {
	l.view = node.View{Ready: true, Peers: peers}
	var change policy.RemoteChange
	l.updateNodes(l.view, &change, l.now)
	l.tell(change)
}

func (l *learns) hears(c cluster.Change[cluster.EndpointGroup]) {
	l.apply(c, l.now)
	l.tell(policy.RemoteChange{})
}

func (l *learns) waits(d time.Duration) {
	l.now = l.now.Add(d)
	l.expire(l.now)
	l.tell(policy.RemoteChange{})
}

func (l *learns) tell(change policy.RemoteChange) {
	l.updateGroups(&change, l.now)
	for _, key := range change.Remove {
		for _, addr := range l.endpoints[key].Addresses {
			if l.owners[addr] == key {
				delete(l.owners, addr)
			}
		}
		delete(l.endpoints, key)
	}
	for _, ep := range change.Set {
		l.endpoints[ep.Key] = ep
		for _, addr := range ep.Addresses {
			l.owners[addr] = ep.Key
		}
	}
	for _, b := range change.RemoveBlocks {
		delete(l.told.blocks, b)
	}
	for _, b := range change.SetBlocks {
		l.told.blocks[b] = true
	}
}

// pods are the addresses and labels of the pods that the policies know: "10.1.0.1 web".
func (l *learns) pods() string {
	var all []string
	for addr, key := range l.owners {
		if ep := l.endpoints[key]; ep.Kind == model.Pod {
			all = append(all, addr.String()+" "+ep.Labels["app"])
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (l *learns) wants(t *testing.T, when, pods string) {
	t.Helper()
	if got := l.pods(); got != pods {
		t.Errorf("%s: pods %q, want %q", when, got, pods)
	}
}

func peer(name string, blocks ...string) node.Peer {
	p := node.Peer{NodeNetwork: cluster.NodeNetwork{Node: node.IDOfName(name)}}
	for _, b := range blocks {
		p.Blocks = append(p.Blocks, netip.MustParsePrefix(b))
	}
	return p
}

// groupOfPods is a group of pods, as "10.1.0.1 web".
func groupOfPods(name string, slot int, pods ...string) cluster.EndpointGroup {
	g := cluster.EndpointGroup{Node: node.IDOfName(name), Slot: slot}
	for i, text := range pods {
		addr, app, _ := strings.Cut(text, " ")
		g.LabelSets = append(g.LabelSets, cluster.LabelSet{Namespace: "shop", Labels: map[string]string{"app": app}})
		g.Endpoints = append(g.Endpoints, cluster.PublishedEndpoint{Addresses: []netip.Addr{netip.MustParseAddr(addr)}, LabelSet: i})
	}
	return g
}

func put(g cluster.EndpointGroup) cluster.Change[cluster.EndpointGroup] {
	return cluster.Change[cluster.EndpointGroup]{Kind: cluster.Put, Name: g.RecordName(), Item: g}
}

func snapshot(all ...cluster.EndpointGroup) cluster.Change[cluster.EndpointGroup] {
	return cluster.Change[cluster.EndpointGroup]{Kind: cluster.Snapshot, All: all}
}

func TestGroupsChange(t *testing.T) {
	l := newLearns(peer("one", "10.1.0.0/24"), peer("two", "10.2.0.0/24"))
	first, second := groupOfPods("one", 0, "10.1.0.1 web", "10.1.0.2 db"), groupOfPods("two", 0, "10.2.0.1 web")
	l.hears(snapshot(first, second))
	l.wants(t, "at first", "10.1.0.1 web, 10.1.0.2 db, 10.2.0.1 web")
	l.hears(put(groupOfPods("one", 0, "10.1.0.1 cache", "10.1.0.3 db")))
	l.wants(t, "a change", "10.1.0.1 cache, 10.1.0.3 db, 10.2.0.1 web")
	l.hears(put(groupOfPods("one", 1, "10.1.0.3 moved")))
	l.hears(put(groupOfPods("one", 0, "10.1.0.1 cache")))
	l.wants(t, "an address in another group", "10.1.0.1 cache, 10.1.0.3 moved, 10.2.0.1 web")
	l.hears(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Deleted, Name: second.RecordName()})
	l.wants(t, "a group is deleted", "10.1.0.1 cache, 10.1.0.3 moved")
	l.sees(peer("two", "10.2.0.0/24"))
	l.wants(t, "a node is deleted", "")
	if want := map[netip.Prefix]bool{netip.MustParsePrefix("10.2.0.0/24"): true}; !maps.Equal(l.told.blocks, want) {
		t.Errorf("blocks %v, want %v", l.told.blocks, want)
	}
	l.sees()
	if len(l.endpoints) != 0 {
		t.Errorf("without nodes there are %v", l.endpoints)
	}
}

// A node cannot say anything about addresses that are not its own.
func TestForeignAddresses(t *testing.T) {
	l := newLearns(peer("one", "10.1.0.0/24"), peer("bad", "10.3.0.0/24"))
	l.hears(snapshot(groupOfPods("one", 0, "10.1.0.1 web"), groupOfPods("bad", 0, "10.1.0.1 db", "10.3.0.1 db", "198.51.100.1 db"), groupOfPods("unknown", 0, "10.4.0.1 db")))
	l.wants(t, "with a hostile node", "10.1.0.1 web, 10.3.0.1 db")
	l.sees(peer("one", "10.1.0.0/24"), peer("bad", "10.3.0.0/24"), peer("unknown", "10.4.0.0/24"))
	l.wants(t, "when its block is known", "10.1.0.1 web, 10.3.0.1 db, 10.4.0.1 db")
}

// Lost groups count until the agents have written them again.
func TestGroupsLost(t *testing.T) {
	there := peer("one", "10.1.0.0/24")
	missing := there
	missing.Missing = true
	l := newLearns(there)
	g := groupOfPods("one", 0, "10.1.0.1 web")
	l.hears(snapshot(g))

	l.sees(missing)
	l.hears(snapshot())
	l.waits(time.Hour)
	l.wants(t, "the store was wiped, and the node is silent", "10.1.0.1 web")
	l.sees(there)
	l.wants(t, "the node's record is there again", "10.1.0.1 web")
	l.hears(put(g))
	l.wants(t, "its group is there again", "10.1.0.1 web")

	l.hears(snapshot())
	l.wants(t, "a list without it", "10.1.0.1 web")
	l.waits(holdTime / 2)
	l.wants(t, "a while later", "10.1.0.1 web")
	l.waits(holdTime)
	l.wants(t, "long after", "")
}

// A previous agent's groups are older than the received pages.
func TestCachedGroupsDuringList(t *testing.T) {
	l := newLearns(peer("one", "10.1.0.0/24"))
	l.hears(page(false, true, groupOfPods("one", 0, "10.1.0.1 web"), groupOfPods("one", 1, "10.1.0.2 web")))
	l.state.addCached([]cluster.EndpointGroup{groupOfPods("one", 0, "10.1.0.1 old"), groupOfPods("one", 2, "10.1.0.3 old"), groupOfPods("one", 3, "10.1.0.4 old")})
	l.tell(policy.RemoteChange{})
	l.wants(t, "with one page and the cache", "10.1.0.1 web, 10.1.0.2 web, 10.1.0.3 old, 10.1.0.4 old")
	l.hears(page(true, false, groupOfPods("one", 2, "10.1.0.3 web")))
	l.wants(t, "with the last page", "10.1.0.1 web, 10.1.0.2 web, 10.1.0.3 web, 10.1.0.4 old")
	l.waits(2 * holdTime)
	l.wants(t, "long after", "10.1.0.1 web, 10.1.0.2 web, 10.1.0.3 web")
}

// page is a part of a list.
func page(continues, more bool, all ...cluster.EndpointGroup) cluster.Change[cluster.EndpointGroup] {
	return cluster.Change[cluster.EndpointGroup]{Kind: cluster.Snapshot, All: all, Continues: continues, More: more}
}

// A list may take longer than what is missing counts.
func TestGroupsInPages(t *testing.T) {
	l := newLearns(peer("one", "10.1.0.0/24"))
	first, second, third := groupOfPods("one", 0, "10.1.0.1 web"), groupOfPods("one", 1, "10.1.0.2 web"), groupOfPods("one", 2, "10.1.0.3 web")
	l.hears(page(false, true, first))
	l.hears(page(true, false, second, third))
	all := "10.1.0.1 web, 10.1.0.2 web, 10.1.0.3 web"
	l.wants(t, "two pages", all)

	l.hears(page(false, true, first))
	l.waits(2 * holdTime)
	l.wants(t, "long after the first page of another list", all)
	l.hears(page(false, true, second))
	l.hears(page(true, false, third))
	l.wants(t, "a list that began anew", all)
	l.waits(2 * holdTime)
	l.wants(t, "long after a list that began anew without the first group", "10.1.0.2 web, 10.1.0.3 web")
}

// TestJoinNamespaces: where groups do not have the labels of namespaces, pods of a namespace that is not known do not
// count.
func TestJoinNamespaces(t *testing.T) {
	l := &learns{state: newState(true), told: told{map[string]model.Endpoint{}, map[netip.Addr]string{}, map[netip.Prefix]bool{}}, now: time.Unix(1000, 0)}
	l.sees(peer("one", "10.1.0.0/24"))
	g := groupOfPods("one", 0, "10.1.0.1 web")
	g.LabelSets[0].NamespaceLabels = map[string]string{"team": "what a node says"}
	l.hears(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Snapshot, All: []cluster.EndpointGroup{g}})
	l.wants(t, "before namespaces are known", "")
	for _, row := range []struct{ team, pods string }{{"a", "10.1.0.1 web"}, {"b", "10.1.0.1 web"}, {"", ""}, {"a", "10.1.0.1 web"}} {
		all := map[string]map[string]string{}
		if row.team != "" {
			all["shop"] = map[string]string{"team": row.team}
		}
		l.setNamespaces(all)
		l.tell(policy.RemoteChange{})
		l.wants(t, "team "+row.team, row.pods)
		for _, ep := range l.endpoints {
			if ep.Kind == model.Pod && ep.NamespaceLabels["team"] != row.team {
				t.Errorf("labels %v of the namespace, want team %s", ep.NamespaceLabels, row.team)
			}
		}
	}
}

// TestAddressOfMissingGroup: while no agent ran, a pod has ended and another one has its address, in another group. The
// agent lists after it has told of what it knew, or before.
func TestAddressOfMissingGroup(t *testing.T) {
	for range 20 { // groups are told of in any order
		for _, late := range []bool{false, true} {
			l := newLearns(peer("one", "10.1.0.0/24"))
			l.joins = late
			l.hears(snapshot(groupOfPods("one", 3, "10.1.0.1 web", "10.1.0.2 web")))
			l.hears(snapshot(groupOfPods("one", 0, "10.1.0.1 db")))
			if late {
				l.setNamespaces(map[string]map[string]string{"shop": {}})
				l.tell(policy.RemoteChange{})
			}
			l.wants(t, "after the list", "10.1.0.1 db, 10.1.0.2 web")
			l.sees(peer("one", "10.1.0.0/24", "10.1.1.0/24"))
			l.wants(t, "when all are told of again", "10.1.0.1 db, 10.1.0.2 web")
			l.waits(holdTime)
			l.wants(t, "when the missing group has expired", "10.1.0.1 db")
		}
	}
}

// TestAddressInTwoGroups: a pod moves between groups, and its node has written only its new group.
func TestAddressInTwoGroups(t *testing.T) {
	for range 20 {
		l := newLearns(peer("one", "10.1.0.0/24"))
		l.hears(snapshot(groupOfPods("one", 0, "10.1.0.1 web", "10.1.0.2 db"), groupOfPods("one", 1, "10.1.0.2 db")))
		l.hears(put(groupOfPods("one", 0, "10.1.0.1 web")))
		l.wants(t, "it has left", "10.1.0.1 web, 10.1.0.2 db")
	}
}
