package policymap

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// errNotInPlace is returned for a change that cannot be made entry by entry: some packet would get a decision that is
// neither the old one nor the new one.
var errNotInPlace = errors.New("the change needs a new copy of the policy")

// move is a change of the class of addresses.
type move struct{ from, to engine.ClassID }

// plan is how addresses change their classes.
type plan struct {
	moves      map[move]bool
	setPrefix  []netip.Prefix                  // the longest first, so that no address is of a shorter one in between
	freePrefix []netip.Prefix                  // the shortest first
	now        map[netip.Prefix]engine.ClassID // of setPrefix
}

func (u *update) plan(change engine.Change) plan {
	p := plan{moves: map[move]bool{}, now: map[netip.Prefix]engine.ClassID{}}
	for _, c := range change.Addresses {
		p.moves[move{u.addresses.classBefore(c), u.e.End(c.Address).Class}] = true
	}
	for _, cidr := range change.Prefixes {
		class, ok := u.e.Prefix(cidr)
		p.moves[move{u.addresses.prefixClass(cidr), class}] = true
		if ok || cidr == allIPv4 {
			p.now[cidr] = class
			p.setPrefix = append(p.setPrefix, cidr)
		} else {
			p.freePrefix = append(p.freePrefix, cidr)
		}
	}
	byBits := func(x, y netip.Prefix) int { return cmp.Compare(x.Bits(), y.Bits()) }
	slices.SortFunc(p.freePrefix, byBits)
	slices.SortFunc(p.setPrefix, byBits)
	slices.Reverse(p.setPrefix)
	for m := range p.moves {
		if m.from == m.to {
			delete(p.moves, m)
		}
	}
	return p
}

// check finds out whether the change can be made in place: first the rows of tables change, then the addresses move,
// then endpoints get other tables. It gives classes in tables that are going away the rows that their addresses have
// there now. Otherwise it returns errNotInPlace.
func (u *update) check(change engine.Change, p plan) error {
	changes := map[engine.TableID]map[engine.ClassID]string{}
	removed := map[engine.TableID]bool{}
	for _, t := range change.Tables {
		removed[t.Table] = t.Removed
		if t.New || t.Removed {
			continue
		}
		rows := map[engine.ClassID]string{}
		for _, own := range t.Classes {
			switch {
			case own.Rows != nil:
				rows[own.Class] = contentOf(own.Rows)
			case !own.Gone:
				rows[own.Class] = u.tables.byID[t.Table].any.content
			}
		}
		changes[t.Table] = rows
	}
	for _, key := range change.Endpoints { // until it has its new table, it would have the new rows of the old one
		was, local := u.endpoints.byKey[key]
		for _, d := range []model.Direction{model.Egress, model.Ingress} {
			if now, ok := u.e.Table(key, d); local && ok && now.ID() != was.tables[d] && len(changes[was.tables[d]]) > 0 {
				return errNotInPlace
			}
		}
	}
	for id, t := range u.tables.byID {
		then := func(c engine.ClassID) string {
			if content, ok := changes[id][c]; ok {
				return content
			}
			return t.setOf(c).content
		}
		for m := range p.moves {
			before := t.setOf(m.from).content
			switch {
			case removed[id]:
				if err := u.keep(t, m); err != nil {
					return err
				}
			case then(m.from) != before && then(m.from) != then(m.to):
				return errNotInPlace
			}
		}
	}
	return nil
}

// keep copies the rows of the class that addresses leave to the class that they move to.
func (u *update) keep(t *table, m move) error {
	set := t.setOf(m.from)
	if t.setOf(m.to) == set {
		return nil
	}
	if u.addresses.members[m.to] > 0 || t.rows[m.to] != nil {
		return errNotInPlace
	}
	set.refs++
	return u.tables.point(t, m.to, set)
}
