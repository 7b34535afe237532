package endpoints

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
)

// holdTime is how long a group counts that was missing in a list, while the record of its node is there.
const holdTime = 30 * time.Second

// state is what the store has told of endpoints, and what of it the policies were told. It is plain data. Large
// clusters have half a million endpoints, so it has what they share once.
type state struct {
	self   cluster.NodeID              // without a key until that is known
	groups map[string]*group           // by the name of the record
	byNode map[cluster.NodeID][]*group // the same ones
	dirty  map[string]bool             // groups to look at again; true: at all of their endpoints
	nodes  map[cluster.NodeID]nodeState
	shared sharedSets
	last   uint64 // number of a group
	list   uint64 // number of a list of the store's
	// listing says that more pages of the list are to come.
	listing bool
	// joins says that groups do not have the labels of namespaces. Then namespaces has them, nil before they are known. Of
	// a namespace that it does not have, no endpoint counts.
	joins      bool
	namespaces map[string]map[string]string
	// changed are the nodes whose groups have changed since the last look at them.
	changed map[cluster.NodeID]bool
}

type group struct {
	number    uint64
	list      uint64 // which was the latest one when the group was told of
	node      cluster.NodeID
	record    *cluster.EndpointGroup // nil of other nodes
	missing   time.Time              // since when; zero when it is there
	endpoints []known
	before    []known // what endpoints were when the policies were told last, if they have changed since
	replaced  bool    // they have
}

// known is an endpoint of another node.
type known struct {
	addresses *addresses
	pod       string
	*sharedSet
}

func (k known) equal(other known) bool {
	return k.sharedSet == other.sharedSet && k.pod == other.pod && *k.addresses == *other.addresses
}

// addresses are an endpoint's, at most two: the second one may be the zero Addr. They do not change, so that policies
// have the same.
type addresses [2]netip.Addr

func (a *addresses) list() []netip.Addr {
	if a[1].IsValid() {
		return a[:]
	}
	return a[:1:1]
}

// nodeState is what counts of a node's record.
type nodeState struct {
	addresses, health []netip.Addr
	blocks            []netip.Prefix
	missing           bool
}

func newState(joins bool) *state {
	return &state{
		groups: map[string]*group{}, byNode: map[cluster.NodeID][]*group{}, dirty: map[string]bool{}, nodes: map[cluster.NodeID]nodeState{},
		joins: joins, shared: sharedSets{}, changed: map[cluster.NodeID]bool{},
	}
}

// knowsNamespaces reports whether the labels of namespaces are known.
func (s *state) knowsNamespaces() bool { return !s.joins || s.namespaces != nil }

// setNamespaces sets the labels of all namespaces. It marks the groups that have endpoints of a changed namespace.
func (s *state) setNamespaces(all map[string]map[string]string) {
	was := s.namespaces
	if s.namespaces = all; all == nil {
		s.namespaces = map[string]map[string]string{}
	}
	changed := func(k known) bool {
		before, ok := was[k.labels.Namespace]
		now, stays := s.namespaces[k.labels.Namespace]
		return ok != stays || !maps.Equal(before, now)
	}
	for name, g := range s.groups {
		if slices.ContainsFunc(g.endpoints, changed) {
			s.dirty[name] = true
		}
	}
}

// namespaceLabels returns false for a namespace that is not known (yet).
func (s *state) namespaceLabels(k known) (map[string]string, bool) {
	if !s.joins {
		return k.labels.NamespaceLabels, true
	}
	labels, ok := s.namespaces[k.labels.Namespace]
	return labels, ok
}

// apply notes what a watch has told.
func (s *state) apply(c cluster.Change[cluster.EndpointGroup], now time.Time) {
	switch c.Kind {
	case cluster.Snapshot:
		if !c.Continues {
			s.list++
		}
		s.listing = c.More
		for _, g := range c.All {
			s.put(g)
		}
		if !c.More {
			s.endList(now)
		}
	case cluster.Put:
		s.put(c.Item)
	case cluster.Deleted:
		if g := s.groups[c.Name]; g != nil {
			if g.missing = now.Add(-holdTime); s.nodes[g.node].missing {
				g.missing = now // with the record of its node: the store was lost
			}
			s.touch(c.Name)
			s.changed[g.node] = true
		}
	}
}

// addCached adds what a previous agent knew, as far as nothing newer is known. The next list to end decides about it.
func (s *state) addCached(all []cluster.EndpointGroup) {
	for _, item := range all {
		if name := item.RecordName(); s.groups[name] == nil {
			s.put(item)
			s.groups[name].list--
		}
	}
}

// endList notes which groups the list did not have.
func (s *state) endList(now time.Time) {
	for name, g := range s.groups {
		if g.list != s.list && g.missing.IsZero() {
			g.missing = now
			s.touch(name)
		}
		s.changed[g.node] = true
	}
}

func (s *state) put(item cluster.EndpointGroup) {
	name := item.RecordName()
	g := s.groups[name]
	if g == nil {
		s.last++
		g = &group{number: s.last, node: item.Node}
		s.groups[name] = g
		s.byNode[g.node] = append(s.byNode[g.node], g)
	}
	g.list, g.missing, g.record = s.list, time.Time{}, nil
	if s.self.Key == "" || item.Node.Name == s.self.Name {
		g.record = &item
	}
	s.replace(g, s.knownOf(g, item))
	s.touch(name)
	s.changed[item.Node] = true
}

// touch marks a group for another look.
func (s *state) touch(name string) {
	if !s.dirty[name] {
		s.dirty[name] = false
	}
}

// knownOf returns the endpoints of a record. Those that the group has already stay what they are.
func (s *state) knownOf(g *group, item cluster.EndpointGroup) []known {
	list := make([]known, 0, len(item.Endpoints))
	keys := make([]string, len(item.LabelSets))
	for i, l := range item.LabelSets {
		keys[i] = keyOf(l)
	}
	for _, ep := range item.Endpoints {
		if len(ep.Addresses) == 0 {
			continue
		}
		k := known{&addresses{}, ep.Pod, s.shared.acquire(keys[ep.LabelSet], item.LabelSets[ep.LabelSet], ep.NamedPorts)}
		copy(k.addresses[:], ep.Addresses)
		if i := slices.IndexFunc(g.endpoints, k.equal); i >= 0 {
			k.addresses = g.endpoints[i].addresses
		}
		list = append(list, k)
	}
	return list
}

// replace gives a group other endpoints.
func (s *state) replace(g *group, list []known) {
	if g.replaced {
		s.release(g.endpoints)
	} else {
		g.before, g.replaced = g.endpoints, true
	}
	g.endpoints = list
}

func (s *state) release(list []known) {
	for _, k := range list {
		s.shared.release(k.sharedSet)
	}
}

// setSelf says which node this is. Of the others, records are not kept.
func (s *state) setSelf(id cluster.NodeID) {
	if s.self == id {
		return
	}
	s.self = id
	for _, g := range s.groups {
		if id.Key != "" && g.node.Name != id.Name {
			g.record = nil
		}
	}
}

// groupsOf are the groups of this node in the store.
func (s *state) groupsOf(id cluster.NodeID) map[int]cluster.EndpointGroup {
	own := map[int]cluster.EndpointGroup{}
	for _, g := range s.groups {
		if g.node == id && g.record != nil && g.missing.IsZero() {
			own[g.record.Slot] = *g.record
		}
	}
	return own
}

// expire ends that groups count which have been missing for long. It looks at all of them.
func (s *state) expire(now time.Time) {
	for name := range s.groups {
		s.expireGroup(name, now)
	}
}

func (s *state) expireGroup(name string, now time.Time) {
	g := s.groups[name]
	if n, known := s.nodes[g.node]; !g.missing.IsZero() && (!known || !n.missing && now.Sub(g.missing) >= holdTime) {
		if len(g.endpoints) > 0 {
			s.replace(g, nil)
		}
		s.touch(name)
	}
}

// updateGroups tells of the groups that have changed.
func (s *state) updateGroups(change *policy.RemoteChange, now time.Time) {
	for name := range s.dirty {
		s.expireGroup(name, now)
	}
	stored := storedEndpoints{s, map[cluster.NodeID]map[netip.Addr]storedEndpoint{}}
	for name, all := range s.dirty {
		s.updateGroup(name, all, stored, change)
	}
	s.dirty = map[string]bool{} // a cleared one keeps the room that it had
}

// updateNodes tells of nodes, of their health endpoints, and of the blocks.
func (s *state) updateNodes(view node.View, change *policy.RemoteChange, now time.Time) {
	before, blocks := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, n := range s.nodes {
		for _, b := range n.blocks {
			before[b] = true
		}
	}
	known, back := map[cluster.NodeID]bool{}, map[cluster.NodeID]bool{}
	changed := map[cluster.NodeID]bool{}
	for _, p := range view.Peers {
		for _, b := range p.Blocks {
			blocks[b] = true
		}
		known[p.Node] = true
		is := nodeState{slices.Concat(p.Addresses, p.Tunnel), p.Health, p.Blocks, p.Missing}
		was, ok := s.nodes[p.Node]
		if ok && reflect.DeepEqual(was, is) {
			continue
		}
		s.nodes[p.Node], back[p.Node] = is, was.missing && !is.missing
		changed[p.Node] = true
		name := p.Node.RecordName()
		change.Set = append(change.Set, model.Endpoint{Key: policy.RemotePrefix + "node/" + name, Kind: model.RemoteNode, Addresses: is.addresses})
		change.Set = append(change.Set, model.Endpoint{Key: policy.RemotePrefix + "health/" + name, Kind: model.Health, Addresses: is.health})
	}
	for id := range s.nodes {
		if !known[id] {
			delete(s.nodes, id)
			changed[id] = true
			change.Remove = append(change.Remove, policy.RemotePrefix+"node/"+id.RecordName(), policy.RemotePrefix+"health/"+id.RecordName())
		}
	}
	if len(changed) > 0 {
		for name, g := range s.groups {
			if changed[g.node] {
				s.dirty[name] = true
			}
			if back[g.node] && !g.missing.IsZero() { // its agent writes the groups soon
				g.missing = now
			}
		}
	}
	for b := range blocks {
		if !before[b] {
			change.SetBlocks = append(change.SetBlocks, b)
		}
	}
	for b := range before {
		if !blocks[b] {
			change.RemoveBlocks = append(change.RemoveBlocks, b)
		}
	}
}

// storedEndpoints are endpoints of the groups that are not missing, by address. They are of one moment.
type storedEndpoints struct {
	state  *state
	byNode map[cluster.NodeID]map[netip.Addr]storedEndpoint // of the nodes that were asked for
}

type storedEndpoint struct {
	group *group
	known
}

func (s storedEndpoints) find(id cluster.NodeID, addr netip.Addr) (storedEndpoint, bool) {
	all := s.byNode[id]
	if all == nil {
		all = map[netip.Addr]storedEndpoint{}
		for _, g := range s.state.byNode[id] {
			for _, k := range g.endpoints {
				for _, addr := range k.addresses.list() {
					if g.missing.IsZero() {
						all[addr] = storedEndpoint{g, k}
					}
				}
			}
		}
		s.byNode[id] = all
	}
	found, ok := all[addr]
	return found, ok
}

// endpoint returns an endpoint as policies know it; false if it does not count.
func (s *state) endpoint(g *group, k known, stored storedEndpoints) (ep model.Endpoint, ok bool) {
	n, ok := s.nodes[g.node]
	if !ok || g.node == s.self {
		return ep, false
	}
	addresses := n.own(k.addresses.list())
	if !g.missing.IsZero() { // the address may be another one's now
		addresses = slices.DeleteFunc(slices.Clone(addresses), func(addr netip.Addr) bool {
			_, taken := stored.find(g.node, addr)
			return taken
		})
	}
	labels, ok := s.namespaceLabels(k)
	return k.endpoint(g.keyOf(k), addresses, labels), ok && len(addresses) > 0
}

// updateGroup tells of the endpoints of a group that have changed, or of all. Of a node that does not count there are
// none.
func (s *state) updateGroup(name string, all bool, stored storedEndpoints, change *policy.RemoteChange) {
	g := s.groups[name]
	before := g.endpoints
	if g.replaced {
		before = g.before
	}
	now := map[string]bool{}
	for _, k := range g.endpoints {
		ep, ok := s.endpoint(g, k, stored)
		if !ok {
			continue
		}
		now[ep.Key] = true
		if all || !slices.ContainsFunc(before, k.equal) {
			change.Set = append(change.Set, ep)
		}
	}
	for _, k := range before {
		key := g.keyOf(k)
		if now[key] {
			continue
		}
		change.Remove = append(change.Remove, key)
		for _, addr := range k.addresses.list() { // a group that was told of before this one may have it, too
			if other, ok := stored.find(g.node, addr); ok && other.group != g {
				if ep, ok := s.endpoint(other.group, other.known, stored); ok {
					change.Set = append(change.Set, ep)
				}
			}
		}
	}
	if g.replaced {
		s.release(g.before)
		g.before, g.replaced = nil, false
	}
	if !g.missing.IsZero() && len(g.endpoints) == 0 {
		delete(s.groups, name)
		s.byNode[g.node] = slices.DeleteFunc(s.byNode[g.node], func(other *group) bool { return other == g })
		if len(s.byNode[g.node]) == 0 {
			delete(s.byNode, g.node)
		}
	}
}

// own returns the addresses that are in the node's blocks, and neither a health endpoint's nor the tunnel's.
func (n nodeState) own(addresses []netip.Addr) []netip.Addr {
	foreign := func(addr netip.Addr) bool {
		return !slices.ContainsFunc(n.blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) || slices.Contains(n.health, addr) || slices.Contains(n.addresses, addr)
	}
	if slices.ContainsFunc(addresses, foreign) {
		return slices.DeleteFunc(slices.Clone(addresses), foreign)
	}
	return addresses
}

// keyOf is the key of an endpoint. Each group has its own for an address: until the records of both have changed, two
// may have it.
func (g *group) keyOf(k known) string {
	return policy.RemotePrefix + strconv.FormatUint(g.number, 10) + "/" + k.addresses[0].String()
}

// endpoint is the endpoint with these of its addresses, as policies know it.
func (k known) endpoint(key string, addresses []netip.Addr, namespaceLabels map[string]string) model.Endpoint {
	return model.Endpoint{
		Key: key, Name: k.pod, Kind: model.Pod, Addresses: addresses,
		Namespace: k.labels.Namespace, NamespaceLabels: namespaceLabels, Labels: k.labels.Labels, NamedPorts: k.ports,
	}
}
