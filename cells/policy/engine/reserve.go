package engine

import (
	"cmp"
	"maps"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// What reserved classes may take.
const (
	maxReserved       = 256
	maxReservedRows   = 1 << 13 // classes in tables of the datapath, which has room for eight times as many
	maxReservedTrials = 1 << 13 // combinations that are looked at
)

// reserved are the classes that exist for addresses which names may get while nobody applies updates: see [Engine.NameClasses].
type reserved struct {
	classes  map[*class]struct{}
	domains  map[*selector]struct{} // all that there are
	sets     [][]*selector          // of domains that are reserved for, by the order of importance
	stale    bool                   // what the classes depend on has changed
	costly   bool                   // the last ones that were wanted would have taken too much in tables
	off      bool                   // there are none: see [Engine.Renew]
	revision uint64                 // is raised when NameClasses has something else
}

// NameClass is a class of addresses outside of the cluster.
type NameClass struct {
	Class  ClassID
	Blocks int   // equal for classes of addresses that are in the same blocks of policies
	Rules  []int // by which names select the addresses: indexes of the rules, sorted
}

// NameRevision is another number when [Engine.NameClasses] returns something else.
func (e *Engine) NameRevision() uint64 { return e.reserved.revision }

// NameClasses returns the rules for names that policies have, and the classes of addresses outside of the cluster, as far as rules for names have to do with them.
// So it says of which class an address is that a name gets: of the one with the same blocks, and with the rules that match the name beside those of before. If there
// is none, only an update makes it.
//
// For each rule, and each set of rules of [Config.NameSets], a class exists when no address is of it, too: for addresses in no block, for those in blocks, and for
// those that have such a class already, in this order. There are at most 256 of these, and fewer when they take too much in tables.
func (e *Engine) NameClasses() (rules []model.DNSRule, classes []NameClass) {
	number := map[*selector]int{}
	for _, sel := range e.domains() {
		number[sel] = len(rules)
		rules = append(rules, sel.peer.Domain)
	}
	blocks := map[string]int{"": 0}
	outside := e.outsideClasses()
	for _, c := range outside {
		if own, domains := splitDomains(c.key.blocks.selectors); len(domains) > 0 {
			if key := setKey(own); blocks[key] == 0 && key != "" {
				blocks[key] = len(blocks)
			}
		}
	}
	for _, c := range outside {
		own, domains := splitDomains(c.key.blocks.selectors)
		n, ok := blocks[setKey(own)]
		if !ok {
			continue
		}
		one := NameClass{Class: c.id, Blocks: n}
		for _, sel := range domains {
			one.Rules = append(one.Rules, number[sel])
		}
		slices.Sort(one.Rules)
		classes = append(classes, one)
	}
	return rules, classes
}

// outsideClasses are those of addresses outside of the cluster, sorted.
func (e *Engine) outsideClasses() []*class {
	return slices.SortedFunc(maps.Keys(e.kindClasses[model.World]), func(x, y *class) int { return cmp.Compare(x.id, y.id) })
}

func (e *Engine) domains() []*selector { return slices.SortedFunc(maps.Keys(e.reserved.domains), byID) }

func splitDomains(selectors []*selector) (blocks, domains []*selector) {
	if !slices.ContainsFunc(selectors, (*selector).isDomain) {
		return selectors, nil
	}
	for _, sel := range selectors {
		if sel.isDomain() {
			domains = append(domains, sel)
		} else {
			blocks = append(blocks, sel)
		}
	}
	return blocks, domains
}

func (s *selector) isDomain() bool { return isDomain(s.peer) }

// touchDomain notes that a selector for names is new or gone.
func (r *reserved) touchDomain(sel *selector, exists bool) {
	if !sel.isDomain() {
		return
	}
	if exists {
		r.domains[sel] = struct{}{}
	} else {
		delete(r.domains, sel)
	}
	r.sets, r.stale = nil, true
	r.revision++
}

// touchClass notes that a class is new or gone, or is another one under its number.
func (r *reserved) touchClass(kind model.EndpointKind) {
	if kind == model.World {
		r.stale = true
		r.revision++
	}
}

// updateReserved makes the reserved classes that are needed now, and has others go. It expects that endpoints have their tables, and that all other classes are as
// they are to be.
func (tx *transaction) updateReserved() {
	e, r := tx.e, &tx.e.reserved
	if len(r.domains)+len(r.classes) == 0 || e.size.exceeded || r.off {
		return
	}
	if len(tx.tables) > 0 { // the classes take more or less
		cost := 0
		for c := range r.classes {
			cost += e.rowCost(c.key.blocks.selectors)
		}
		r.stale = r.stale || cost > maxReservedRows || r.costly && cost < maxReservedRows/2
	}
	if !r.stale {
		return
	}
	if r.sets == nil {
		r.sets = e.nameSets()
	}
	old := r.classes
	r.classes = map[*class]struct{}{}
	tx.reserve()
	for c := range old {
		if _, ok := r.classes[c]; !ok && c.members == 0 {
			tx.note(c)
			e.leaveKey(c)
		}
	}
	r.stale = false
}

// nameSets are the sets of rules to reserve classes for: those of [Config.NameSets], and each rule alone.
func (e *Engine) nameSets() (sets [][]*selector) {
	domains := e.domains()
	seen := map[string]bool{}
	add := func(set []*selector) {
		slices.SortFunc(set, byID)
		set = slices.Compact(set)
		if key := setKey(set); !seen[key] && len(set) > 0 && len(sets) < maxReserved {
			seen[key] = true
			sets = append(sets, set)
		}
	}
	if e.config.NameSets != nil {
		rules := make([]model.DNSRule, len(domains))
		for i, sel := range domains {
			rules[i] = sel.peer.Domain
		}
		for _, set := range e.config.NameSets(rules) {
			selectors := make([]*selector, 0, len(set))
			for _, i := range set {
				selectors = append(selectors, domains[i])
			}
			add(selectors)
		}
	}
	for _, sel := range domains {
		add([]*selector{sel})
	}
	return sets
}

// reserve combines what addresses may be selected by now with the sets of rules, in the order of importance.
func (tx *transaction) reserve() {
	e, r := tx.e, &tx.e.reserved
	r.costly = false
	now := e.selectionsNow()
	seen := map[string]bool{}
	cost, trials := 0, 0
	for i := 0; i < len(now); i++ {
		for _, set := range r.sets {
			if trials++; trials > maxReservedTrials || len(r.classes) >= maxReserved {
				return
			}
			wanted := union(now[i], set)
			if key := setKey(wanted); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			if cost += e.rowCost(wanted); cost > maxReservedRows {
				r.costly = true
				return
			}
			c := tx.reserveOne(wanted)
			if r.classes[c] = struct{}{}; c.members == 0 {
				now = append(now, wanted) // as an address of it may get another name, too
			}
		}
	}
}

func (tx *transaction) reserveOne(selectors []*selector) *class {
	e := tx.e
	key := classKey{kind: model.World, labels: e.noSelectors, blocks: e.intern(selectors)}
	defer e.release(key.blocks)
	if c := e.classes[key]; c != nil {
		return c
	}
	return tx.makeClass(key, nil)
}

// selectionsNow returns what addresses outside of the cluster are selected by: none, those in blocks, and those of names.
func (e *Engine) selectionsNow() [][]*selector {
	var inBlocks, ofNames [][]*selector
	for _, c := range e.outsideClasses() {
		selectors := c.key.blocks.selectors
		switch named := slices.ContainsFunc(selectors, (*selector).isDomain); {
		case named && c.members > 0:
			ofNames = append(ofNames, selectors)
		case !named && len(selectors) > 0:
			inBlocks = append(inBlocks, selectors)
		}
	}
	return slices.Concat([][]*selector{nil}, inBlocks, ofNames)
}

func union(x, y []*selector) []*selector {
	all := slices.Concat(x, y)
	slices.SortFunc(all, byID)
	return slices.Compact(all)
}

// rowCost is how many tables may have rows for a class of addresses outside of the cluster, or more.
func (e *Engine) rowCost(selectors []*selector) int {
	cost := len(e.kindTables)
	for _, sel := range selectors {
		cost += len(sel.tables)
	}
	return cost
}
