package engine

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/gaissmai/bart"

	"porin.dev/porin/cells/policy/model"
)

// Config says what is decided beside the policies.
type Config struct {
	// HostPolicy subjects traffic from this node to its own pods to policy. Without it, it is always allowed.
	HostPolicy bool
	// Audit says that no policy is in force for any local endpoint: what they would decide is only reported.
	Audit bool
}

// Engine holds policies, endpoints, and what follows from them. It is for one goroutine at a time; any number may read between
// two calls of [Engine.Apply].
type Engine struct {
	config    Config
	policies  map[model.PolicyID]*policy
	endpoints map[string]*endpoint
	local     map[string]*endpoint // of endpoints, those that policies are enforced for

	selectors    map[string]*selector
	selectorSets map[string]*selectorSet
	noSelectors  *selectorSet
	namespaces   map[string]*namespace
	names        map[string]int // named ports in rules for egress

	addresses bart.Table[*member]
	prefixes  bart.Table[*prefix]

	classes     map[classKey]*class
	hostClasses map[*class]struct{}
	portClasses map[*class]struct{} // with named ports
	tables      map[string]*table
	nameTables  map[*table]struct{} // for egress, with named ports in their rules
	hostTables  map[*table]struct{} // for ingress

	size         size
	lastSelector uint32
	lastPolicy   uint64
	lastClass    ClassID
	lastTable    TableID
}

type endpoint struct {
	model.Endpoint
	labelSet  *labelSet
	portsKey  string
	*enforced // only of a local endpoint
}

// enforced is what a local endpoint has more.
type enforced struct {
	policies []*policy // that select it, in their order
	tables   [2]*table // by direction
	proposed [2]*table // what tables would be if nothing was in audit, without rows; nil when it is the same
}

// subject reports whether policies apply to the endpoint.
func (ep *endpoint) subject() bool { return ep.Kind == model.Pod || ep.Kind == model.Init }

// New returns an engine without policies and endpoints.
func New(config Config) *Engine {
	e := &Engine{
		config: config, policies: map[model.PolicyID]*policy{}, endpoints: map[string]*endpoint{}, local: map[string]*endpoint{},
		selectors: map[string]*selector{}, selectorSets: map[string]*selectorSet{}, namespaces: map[string]*namespace{}, names: map[string]int{},
		classes: map[classKey]*class{}, hostClasses: map[*class]struct{}{}, portClasses: map[*class]struct{}{},
		tables: map[string]*table{}, nameTables: map[*table]struct{}{}, hostTables: map[*table]struct{}{},
	}
	e.noSelectors = e.intern(nil)
	// Every pod matches this one from its beginning, so that a rule for all pods changes no class.
	(&apply{e: e}).acquire(model.Peer{Pods: &model.Pods{}})
	for kind := model.World; kind < model.Pod; kind++ {
		c := &class{id: FixedClass(kind), members: 1} // itself, so that it stays
		e.enter(c, classKey{kind: kind, labels: e.noSelectors, blocks: e.noSelectors})
	}
	e.lastClass = FixedClass(model.Pod)
	return e
}

// Update is a set of changes. Removals come first. A policy or endpoint that is set replaces the one of the same ID or key.
type Update struct {
	RemovePolicies  []model.PolicyID
	SetPolicies     []model.Policy
	RemoveEndpoints []string
	SetEndpoints    []model.Endpoint
}

// Change says what an update has changed. The state after it is in the engine.
type Change struct {
	Addresses []netip.Addr   // of endpoints: [Engine.End] says the class, or that no endpoint has the address
	Prefixes  []netip.Prefix // [Engine.Prefixes] has those that still exist
	Endpoints []string       // keys of local ones which have another table in a direction than before, are new, or are gone
	Tables    []TableChange  // in the order of their numbers
}

// TableChange is a change of one table.
type TableChange struct {
	Table   TableID
	New     bool        // all rows are new
	Removed bool        // no endpoint uses it any more
	Classes []ClassRows // of a table that stays: what has changed
}

// ClassRows are the rows that a class has of its own in a table.
type ClassRows struct {
	Class ClassID
	Rows  []Row // nil: it has none any more
	Gone  bool  // nothing is of this class any more
}

// apply is the state of one update.
type apply struct {
	e            *Engine
	newSelectors []*selector
	deadSelector bool
	names        map[string]bool // were they in use before?
	blocks       []netip.Prefix
	members      []*member
	emptied      []*class
	classes      map[*class]classChange
	changed      map[*endpoint]struct{} // local endpoints whose policies or ports have changed
	newTables    []*table
	addresses    map[netip.Prefix]struct{}
	prefixes     map[netip.Prefix]struct{}
	tables       map[*table]*TableChange
	endpoints    map[string]struct{}
}

// Apply makes the changes, all together.
func (e *Engine) Apply(u Update) Change {
	a := &apply{
		e: e, names: map[string]bool{}, classes: map[*class]classChange{}, changed: map[*endpoint]struct{}{},
		addresses: map[netip.Prefix]struct{}{}, prefixes: map[netip.Prefix]struct{}{},
		tables: map[*table]*TableChange{}, endpoints: map[string]struct{}{},
	}
	for _, id := range u.RemovePolicies {
		if p := e.policies[id]; p != nil {
			a.removePolicy(p)
		}
	}
	for _, p := range u.SetPolicies {
		a.setPolicy(p)
	}
	for _, key := range u.RemoveEndpoints {
		if ep := e.endpoints[key]; ep != nil {
			a.removeEndpoint(ep)
		}
	}
	a.updateSelectors()
	for _, ep := range u.SetEndpoints {
		a.setEndpoint(ep)
	}
	a.updateNames()
	a.reclassify()
	a.updateTables()
	return a.change()
}

func (a *apply) updateSelectors() {
	e := a.e
	if a.deadSelector {
		for key, sel := range e.selectors {
			if sel.refs > 0 {
				continue
			}
			delete(e.selectors, key)
			if sel.peer.Block != nil && !slices.Contains(a.newSelectors, sel) {
				e.removeBlock(a, sel)
			}
		}
	}
	for _, sel := range a.newSelectors {
		if sel.refs > 0 && sel.peer.Block != nil {
			e.addBlock(a, sel)
		}
	}
	if a.deadSelector || len(a.newSelectors) > 0 {
		a.updateLabelSets()
	}
	a.updateBlocks()
}

// updateNames looks for endpoints with ports whose name has come into use or gone out of use.
func (a *apply) updateNames() {
	turned := map[string]bool{}
	for name, before := range a.names {
		if before != (a.e.names[name] > 0) {
			turned[name] = true
		}
	}
	if len(turned) == 0 {
		return
	}
	for _, ep := range a.e.endpoints {
		if slices.ContainsFunc(ep.NamedPorts, func(p model.NamedPort) bool { return turned[p.Name] }) {
			ep.portsKey = portsKey(a.e.asked(ep.NamedPorts))
			a.dirtyAddresses(ep)
		}
	}
}

func (a *apply) setEndpoint(set model.Endpoint) {
	e := a.e
	ep := e.endpoints[set.Key]
	var before []netip.Addr
	if ep == nil {
		ep = &endpoint{}
		e.endpoints[set.Key] = ep
	} else {
		if reflect.DeepEqual(ep.Endpoint, set) && e.ownsAll(ep) {
			return
		}
		before = ep.Addresses
	}
	ep.Endpoint = set
	if p := e.labelSetOf(set); p != ep.labelSet {
		p.endpoints = append(p.endpoints, ep)
		if ep.labelSet != nil {
			e.leave(ep)
		}
		ep.labelSet = p
	}
	e.share(ep)
	a.setAddresses(ep, before)
	switch isLocal := set.Local && ep.subject(); {
	case isLocal:
		if ep.enforced == nil {
			ep.enforced = &enforced{}
			e.local[set.Key] = ep
		}
		ep.policies = e.policiesOf(ep)
		a.changed[ep] = struct{}{}
	case ep.enforced != nil:
		a.dropLocal(ep)
	}
}

// share keeps in memory only once what endpoints of a label set have in common.
func (e *Engine) share(ep *endpoint) {
	if ep.Kind == model.Pod {
		ep.Namespace, ep.NamespaceLabels, ep.Labels = ep.labelSet.namespace.name, ep.labelSet.namespace.labels, ep.labelSet.labels
	}
	first := ep.labelSet.endpoints[0]
	if first != ep && slices.Equal(first.NamedPorts, ep.NamedPorts) {
		ep.NamedPorts, ep.portsKey = first.NamedPorts, first.portsKey
		return // what is out of date in the key, updateNames mends for both
	}
	ep.portsKey = portsKey(e.asked(ep.NamedPorts))
}

func single(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	return netip.PrefixFrom(addr, addr.BitLen())
}

// owned gives those of the addresses that no other endpoint was set with later.
func (e *Engine) owned(ep *endpoint, addresses []netip.Addr) iter.Seq[*member] {
	return func(yield func(*member) bool) {
		for _, addr := range addresses {
			if m, ok := e.addresses.Get(single(addr)); ok && m.owner == ep && !yield(m) {
				return
			}
		}
	}
}

func (e *Engine) ownsAll(ep *endpoint) bool {
	n := 0
	for range e.owned(ep, ep.Addresses) {
		n++
	}
	return n == len(ep.Addresses)
}

func (a *apply) dirtyAddresses(ep *endpoint) {
	for m := range a.e.owned(ep, ep.Addresses) {
		a.dirty(m)
	}
}

func (a *apply) setAddresses(ep *endpoint, before []netip.Addr) {
	e := a.e
	for m := range e.owned(ep, before) {
		if !slices.ContainsFunc(ep.Addresses, func(addr netip.Addr) bool { return single(addr) == m.prefix }) {
			e.addresses.Delete(m.prefix)
			a.remove(m)
		}
	}
	for _, addr := range ep.Addresses {
		m, ok := e.addresses.Get(single(addr))
		if !ok {
			m = &member{prefix: single(addr)}
			e.addresses.Insert(m.prefix, m)
		}
		m.owner = ep
		a.dirty(m)
	}
}

func (a *apply) removeEndpoint(ep *endpoint) {
	e := a.e
	delete(e.endpoints, ep.Key)
	before := ep.Addresses
	ep.Addresses = nil
	a.setAddresses(ep, before)
	e.leave(ep)
	if ep.enforced != nil {
		a.dropLocal(ep)
	}
}

func (a *apply) dropLocal(ep *endpoint) {
	delete(a.e.local, ep.Key)
	delete(a.changed, ep)
	a.endpoints[ep.Key] = struct{}{}
	for _, t := range ep.tables {
		if t != nil {
			a.releaseTable(t)
		}
	}
	ep.enforced = nil
}

func (a *apply) moved(m *member) {
	switch {
	case m.owner != nil:
		a.addresses[m.prefix] = struct{}{}
	default:
		a.prefixes[m.prefix] = struct{}{}
	}
}

func (a *apply) change() Change {
	var c Change
	for _, p := range slices.SortedFunc(maps.Keys(a.addresses), netip.Prefix.Compare) {
		c.Addresses = append(c.Addresses, p.Addr())
	}
	c.Prefixes = slices.SortedFunc(maps.Keys(a.prefixes), netip.Prefix.Compare)
	c.Endpoints = slices.Sorted(maps.Keys(a.endpoints))
	for _, t := range a.tables {
		slices.SortFunc(t.Classes, func(x, y ClassRows) int { return cmp.Compare(x.Class, y.Class) })
		c.Tables = append(c.Tables, *t)
	}
	slices.SortFunc(c.Tables, func(x, y TableChange) int { return cmp.Compare(x.Table, y.Table) })
	return c
}

// End is an address as the policies know it, such as one end of a connection.
type End struct {
	Address  netip.Addr
	Kind     model.EndpointKind
	Class    ClassID // by which a datapath looks for rows
	Endpoint string  // the key of the endpoint that has the address, or ""
}

// End returns what the policies know about an address.
func (e *Engine) End(addr netip.Addr) End {
	c, owner := e.lookup(addr)
	end := End{Address: addr.Unmap(), Kind: model.World, Class: c.id}
	if owner != nil {
		end.Kind, end.Endpoint = owner.Kind, owner.Key
	}
	return end
}

// Addresses gives the addresses of endpoints and their classes.
func (e *Engine) Addresses() iter.Seq2[netip.Addr, ClassID] {
	return func(yield func(netip.Addr, ClassID) bool) {
		for cidr, m := range e.addresses.All() {
			if !yield(cidr.Addr(), m.class.id) {
				return
			}
		}
	}
}

// HostClasses returns the classes of the node's own addresses; without addresses, the one that they would have.
func (e *Engine) HostClasses() (ids []ClassID) {
	for c := range e.hostClasses {
		if c.id != FixedClass(model.Host) || c.members > 1 { // itself
			ids = append(ids, c.id)
		}
	}
	if len(ids) == 0 {
		ids = append(ids, FixedClass(model.Host))
	}
	slices.Sort(ids)
	return ids
}

func (e *Engine) lookup(addr netip.Addr) (*class, *endpoint) {
	addr = addr.Unmap()
	if m, ok := e.addresses.Lookup(addr); ok {
		return m.class, m.owner
	}
	if p, ok := e.prefixes.Lookup(addr); ok {
		return p.class, nil
	}
	return e.classes[classKey{kind: model.World, labels: e.noSelectors, blocks: e.noSelectors}], nil
}

// Prefixes gives the classes of ranges of addresses that are no endpoint's. The longest one decides.
func (e *Engine) Prefixes() iter.Seq2[netip.Prefix, ClassID] {
	return func(yield func(netip.Prefix, ClassID) bool) {
		for cidr, p := range e.prefixes.All() {
			if !yield(cidr, p.class.id) {
				return
			}
		}
	}
}
