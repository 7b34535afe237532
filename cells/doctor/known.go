package doctor

import (
	"cmp"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// compare tells what a look has found, with what is known of it, and keeps nothing.
func (c *chart) compare(o opinion, found []Finding, now time.Time) (list []v1.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range found {
		finding := v1.Finding{Since: now, Times: 1}
		if r := c.records[key{o.owner, f.Kind, f.Subject}]; r != nil {
			finding = r.Finding
		}
		describe(&finding, f, o, c.repairs)
		list = append(list, finding)
	}
	slices.SortFunc(list, byName)
	return list
}

// known are the findings of one owner.
func (c *chart) known(owner string) (list []v1.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, r := range c.records {
		if k.owner == owner {
			list = append(list, r.Finding)
		}
	}
	slices.SortFunc(list, byName)
	return list
}

func byName(a, b v1.Finding) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
}

// ownedKind is a kind and whose it is.
type ownedKind struct{ name, owner string }

// count has all kinds of owners, also those of which there is no finding.
func (c *chart) count(owners map[string]string) map[ownedKind]int {
	counts := map[ownedKind]int{}
	for name, owner := range owners {
		counts[ownedKind{name, owner}] = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.records {
		counts[ownedKind{k.kind, k.owner}]++
	}
	return counts
}
