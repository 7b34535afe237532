package doctor

import (
	"slices"

	v1 "porin.dev/porin/api/v1"
)

// Scope restricts an examination. The zero one is all.
type Scope struct {
	// Endpoint is an attachment (containerID:ifname), for what is about it alone: then the look does not count as one of the
	// two that a repair takes.
	Endpoint string
	// About is what the kinds are about: see [Kind].About. Such a look counts.
	About string
}

// has tells whether a checker may find something of the scope.
func (s Scope) has(checker Checker) bool {
	return s.About == "" || slices.ContainsFunc(checker.Kinds(), func(k Kind) bool { return k.About == s.About })
}

// of leaves those of an owner's findings that are of the scope.
func (s Scope) of(o opinion, list []v1.Finding) []v1.Finding {
	return slices.DeleteFunc(list, func(f v1.Finding) bool { return s.About != "" && o.kinds[f.Kind].About != s.About })
}

// subjects are what kinds are about.
func (d *Doctor) subjects() (all []string) {
	for _, checker := range d.checkers {
		for _, kind := range checker.Kinds() {
			if kind.About != "" && !slices.Contains(all, kind.About) {
				all = append(all, kind.About)
			}
		}
	}
	slices.Sort(all)
	return all
}
