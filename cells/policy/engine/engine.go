package engine

import (
	"maps"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Config says what is decided beside the policies.
type Config struct {
	// HostPolicy subjects traffic from this node to its own pods to policy. Without it, it is always allowed.
	HostPolicy bool
	// Audit says that no policy is in force for any local endpoint: their decisions are only reported.
	Audit bool
	// AllowUnmanaged lets addresses of kind [model.Unmanaged] reach every pod of this node whose labels are known.
	AllowUnmanaged bool
}

// Engine holds policies, endpoints, and what follows from them. It is for one goroutine at a time; any number may read
// between two calls of [Engine.Apply].
type Engine struct {
	config    Config
	size      *size
	selectors *selectors
	addresses *addresses
	endpoints *endpoints
	policies  *policies
	classes   *classes
	layer7s   *layer7s
	tables    *tables
}

// New returns an engine without policies and endpoints.
func New(config Config) *Engine { return newEngine(config, newLayer7s()) }

func newEngine(config Config, layer7s *layer7s) *Engine {
	size := &size{}
	names := &portNames{rules: map[string]int{}, before: map[string]bool{}}
	selectors := newSelectors(size)
	classes := newClasses(selectors, names)
	world := classes.byKey[classKey{kind: model.World, labels: selectors.none, blocks: selectors.none}]
	addresses := &addresses{selectors: selectors, size: size, world: world}
	addresses.reset()
	return &Engine{
		config: config, size: size, selectors: selectors, addresses: addresses, classes: classes, layer7s: layer7s,
		endpoints: &endpoints{
			byKey: map[string]*endpoint{}, namespaces: map[string]*namespace{}, selectors: selectors, names: names, addresses: addresses,
		},
		policies: &policies{
			byID: map[model.PolicyID]*policy{}, local: map[string]*local{}, changed: map[*local]struct{}{}, selectors: selectors, names: names,
		},
		tables: &tables{
			config: config, byKey: map[string]*table{}, named: map[*table]struct{}{}, ingress: map[*table]struct{}{}, kinds: map[*table]struct{}{},
			classes: classes, layer7s: layer7s, size: size,
		},
	}
}

// Renew returns an engine without policies and endpoints which knows the numbers of layer 7 rules. The one before is
// not to be used any more.
func (e *Engine) Renew() *Engine {
	renewed := newEngine(e.config, e.layer7s)
	for _, l := range e.layer7s.byNumber {
		l.tables = 0
		renewed.size.addWork(l.work())
	}
	return renewed
}

// SetLayer7Key sets the secret for hashing rule sets to numbers. Without it an attacker could construct colliding sets.
// It is called before the first policy.
func (e *Engine) SetLayer7Key(key []byte) { e.layer7s.key = key }

// ReleaseLayer7 forgets rules that no row has. Their numbers may then stand for others.
func (e *Engine) ReleaseLayer7(list []*Layer7) {
	for _, l := range list {
		if e.KnowsLayer7(l) && l.tables == 0 {
			delete(e.layer7s.byNumber, l.Number)
			delete(e.layer7s.byContent, l.content)
			e.size.addWork(-l.work())
		}
	}
}

// WithholdLayer7 has [Decision.Value] deny in the place of the rules that is reports, and of no others. It reports
// whether that is another answer than before for rules that rows have.
func (e *Engine) WithholdLayer7(is func(*Layer7) bool) (changed bool) {
	for _, l := range e.layer7s.byNumber {
		withheld := is(l)
		changed = changed || withheld != l.withheld && l.tables > 0
		l.withheld = withheld
	}
	return changed
}

// Update is a set of changes. Removals come first. A policy or endpoint that is set replaces the one of the same ID or
// key.
type Update struct {
	RemovePolicies  []model.PolicyID
	SetPolicies     []model.Policy
	RemoveEndpoints []string
	SetEndpoints    []model.Endpoint
	// Addresses in these ranges that no endpoint has are, or are not any more, of kind [model.Unmanaged]: unknown pods of
	// other nodes. Ranges do not overlap.
	SetUnmanaged, RemoveUnmanaged []netip.Prefix
	// Domains are changes of the addresses that names have. Changes of a rule that no policy has after the update are
	// ignored, and a rule that a policy gets now begins without addresses.
	Domains []DomainChange
}

// Change says what an update has changed. The state after it is in the engine.
type Change struct {
	Addresses []AddressChange // of endpoints
	Prefixes  []netip.Prefix  // [Engine.Prefixes] has the remaining ones
	Endpoints []string        // keys of local endpoints that have another table in a direction than before, are new, or are deleted
	Tables    []TableChange   // in the order of their numbers
}

// AddressChange is an address that has another class than before, or is new or gone. [Engine.End] says which one, or
// that no endpoint has it.
type AddressChange struct {
	Address netip.Addr
	Before  ClassID // 0: no endpoint had it
}

// TableChange is a change of one table.
type TableChange struct {
	Table   TableID
	New     bool        // all rows are new
	Removed bool        // no endpoint uses it any more
	Classes []ClassRows // of a table that stays: its changes
}

// ClassRows are the rows that a class has of its own in a table.
type ClassRows struct {
	Class ClassID
	Rows  []Row // nil: it has none any more
	Gone  bool  // nothing is of this class any more
}

// Apply makes the changes, all together.
func (e *Engine) Apply(u Update) Change {
	for _, id := range u.RemovePolicies {
		if p := e.policies.byID[id]; p != nil {
			e.policies.remove(p)
		}
	}
	for _, p := range u.SetPolicies {
		e.policies.set(p)
	}
	for _, key := range u.RemoveEndpoints {
		if ep := e.endpoints.byKey[key]; ep != nil {
			e.endpoints.remove(ep)
			e.policies.removeLocal(key)
		}
	}
	for _, cidr := range u.RemoveUnmanaged {
		e.addresses.setUnmanaged(cidr, false)
	}
	for _, cidr := range u.SetUnmanaged {
		e.addresses.setUnmanaged(cidr, true)
	}
	for _, d := range u.Domains {
		if sel := e.selectors.byKey[domainKey(d.Rule)]; sel != nil && sel.refs > 0 {
			e.addresses.changeDomain(sel, d.Add, d.Remove)
		}
	}
	added, removed := e.selectors.takeChanges()
	for _, sel := range removed {
		e.addresses.changeDomain(sel, nil, slices.Collect(maps.Keys(sel.addresses)))
		if b := sel.peer.Block; b != nil {
			e.addresses.remove(sel, b.CIDR, b.Except...)
		}
	}
	for _, sel := range added {
		if b := sel.peer.Block; b != nil {
			e.addresses.add(sel, b.CIDR, b.Except...)
		}
	}
	if len(added)+len(removed) > 0 {
		e.endpoints.updateSelectors(added)
	}
	e.addresses.updateRanges()
	for _, set := range u.SetEndpoints {
		ep, changed := e.endpoints.set(set)
		switch {
		case !changed:
		case ep.Local && ep.subject():
			e.policies.setLocal(ep)
		default:
			e.policies.removeLocal(ep.Key)
		}
	}
	e.endpoints.updateNames()
	classes := e.classes.update(e.addresses)
	change := e.tables.update(e.policies.changed, e.policies.removed, classes)
	e.policies.changed, e.policies.removed = map[*local]struct{}{}, nil
	for p, class := range e.addresses.before {
		if p.isRange {
			change.Prefixes = append(change.Prefixes, p.cidr)
			continue
		}
		moved := AddressChange{Address: p.cidr.Addr()}
		if class != nil {
			moved.Before = class.id
		}
		change.Addresses = append(change.Addresses, moved)
	}
	slices.SortFunc(change.Prefixes, netip.Prefix.Compare)
	slices.SortFunc(change.Addresses, func(x, y AddressChange) int { return x.Address.Compare(y.Address) })
	e.addresses.reset()
	return change
}

// What policies may take in memory and time. The maps of the datapath hold less, but what goes there is only known when
// all is compiled: rules whose blocks overlap take the product of blocks, rules and ports.
const (
	maxMembers = 1 << 22 // of all sets of selectors
	maxWork    = 1 << 26 // some tenths of a second
)

// size is what an engine holds.
type size struct {
	members, work int
	exceeded      bool
}

func (s *size) addMembers(n int) {
	s.members += n
	s.exceeded = s.exceeded || s.members > maxMembers
}

func (s *size) addWork(n int) {
	s.work += n
	s.exceeded = s.exceeded || s.work > maxWork
}
