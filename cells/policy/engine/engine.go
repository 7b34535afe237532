package engine

import (
	"github.com/gaissmai/bart"

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

// Engine holds policies, endpoints, and what follows from them. It is for one goroutine at a time; any number may read between
// two calls of [Engine.Apply].
type Engine struct {
	config    Config
	policies  map[model.PolicyID]*policy
	endpoints map[string]*endpoint
	local     map[string]*local

	selectors    map[string]*selector
	selectorSets map[string]*selectorSet
	noSelectors  *selectorSet
	namespaces   map[string]*namespace
	names        map[string]int // named ports in rules for egress

	addresses bart.Table[member]
	prefixes  bart.Table[*prefix]

	classes       map[classKey]*class
	kindClasses   [model.Pod]map[*class]struct{} // of each kind but pods
	portClasses   map[*class]struct{}            // with named ports
	tables        map[string]*table
	nameTables    map[*table]struct{} // for egress, with named ports in their rules
	ingressTables map[*table]struct{} // for ingress
	kindTables    map[*table]struct{} // whose rules tell kinds apart

	layer7s      *layer7s
	size         size
	lastSelector uint32
	lastPolicy   uint64
	lastClass    ClassID
	lastTable    TableID
}

// New returns an engine without policies and endpoints.
func New(config Config) *Engine {
	e := &Engine{
		config: config, policies: map[model.PolicyID]*policy{}, endpoints: map[string]*endpoint{}, local: map[string]*local{},
		selectors: map[string]*selector{}, selectorSets: map[string]*selectorSet{}, namespaces: map[string]*namespace{}, names: map[string]int{},
		classes: map[classKey]*class{}, portClasses: map[*class]struct{}{},
		tables: map[string]*table{}, nameTables: map[*table]struct{}{}, ingressTables: map[*table]struct{}{}, kindTables: map[*table]struct{}{},
		layer7s: newLayer7s(),
	}
	e.noSelectors = e.intern(nil)
	// Every pod matches this one from its beginning, so that a rule for all pods changes no class.
	(&transaction{e: e}).acquire(model.Peer{Pods: &model.Pods{}})
	for kind := model.World; kind < model.Pod; kind++ {
		e.kindClasses[kind] = map[*class]struct{}{}
		c := &class{id: FixedClass(kind), members: 1} // itself, so that it stays
		e.enter(c, classKey{kind: kind, labels: e.noSelectors, blocks: e.noSelectors})
	}
	e.lastClass = FixedClass(model.Pod)
	return e
}

// SetLayer7Key sets the secret for hashing rule sets to numbers. Without it an attacker could construct colliding sets. It is called
// before the first policy.
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

// WithholdLayer7 has [Decision.Value] deny in the place of the rules that is reports, and of no others. It reports whether that is another answer than before for
// rules that rows have.
func (e *Engine) WithholdLayer7(is func(*Layer7) bool) (changed bool) {
	for _, l := range e.layer7s.byNumber {
		withheld := is(l)
		changed = changed || withheld != l.withheld && l.tables > 0
		l.withheld = withheld
	}
	return changed
}

// Renew returns an engine without policies and endpoints which knows the numbers of layer 7 rules. The one before is not to be used any more.
func (e *Engine) Renew() *Engine {
	renewed := New(e.config)
	renewed.layer7s = e.layer7s
	for _, l := range renewed.layer7s.byNumber {
		l.tables = 0
		renewed.size.addWork(l.work())
	}
	return renewed
}
