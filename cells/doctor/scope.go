package doctor

import (
	"slices"

	v1 "porin.dev/porin/api/v1"
)

// Scope restricts an examination. The zero one is all.
type Scope struct {
	// Endpoint is an attachment (containerID:ifname), for what is about it alone: then the examination does not count as
	// one of the two that a repair takes.
	Endpoint string
	// About is one of the [Kind].About. Such an examination counts.
	About string
}

// includes reports whether a checker may find something of the scope.
func (s Scope) includes(checker Checker) bool {
	return s.About == "" || slices.ContainsFunc(checker.Kinds(), func(k Kind) bool { return k.About == s.About })
}

// filter returns a checker's findings of the scope.
func (s Scope) filter(result checkResult, list []v1.Finding) []v1.Finding {
	return slices.DeleteFunc(list, func(f v1.Finding) bool { return s.About != "" && result.kinds[f.Kind].About != s.About })
}

// repairable reports whether a record is of the scope, and has a repair.
func (s Scope) repairable(r *record) bool {
	return r.repair != nil && (s.About == "" || r.about == s.About)
}

// abouts returns what a [Scope] can be restricted to.
func (d *Doctor) abouts() (all []string) {
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

// checkResult is what one checker has found.
type checkResult struct {
	owner string
	kinds map[string]Kind
	found []Finding
	notes []Finding // of kinds that are no disagreements
	err   error
}

func newCheckResult(checker Checker, found []Finding, err error) checkResult {
	result := checkResult{owner: checker.Owner(), kinds: map[string]Kind{}, err: err}
	for _, kind := range checker.Kinds() {
		result.kinds[kind.Name] = kind
	}
	for _, f := range found {
		if result.kinds[f.Kind].Note {
			result.notes = append(result.notes, f)
		} else {
			result.found = append(result.found, f)
		}
	}
	return result
}
