package doctor

import (
	"context"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// key is what makes two findings the same.
type key struct{ owner, kind, subject string }

// record is one finding.
type record struct {
	v1.Finding
	repair  func(context.Context) error
	about   string    // as its kind says
	seen    time.Time // the last examination that found it
	counted time.Time // the last one that counted
	acted   time.Time // when the last repair ended
	tries   int       // repairs so far
	next    time.Time // no repair before
	due     bool      // found twice, and again since the last repair
}

// opinion is what one checker's look came to.
type opinion struct {
	owner string
	kinds map[string]Kind
	found []Finding
	notes []Finding // of kinds that are no disagreements
	err   error
}

func newOpinion(checker Checker, found []Finding, err error) opinion {
	o := opinion{owner: checker.Owner(), kinds: kindsOf(checker), err: err}
	for _, f := range found {
		if o.kinds[f.Kind].Note {
			o.notes = append(o.notes, f)
		} else {
			o.found = append(o.found, f)
		}
	}
	return o
}

// change is what is different after a look.
type change struct {
	owner       string
	fresh, gone []v1.Finding
	failed      error // nil when it failed in the same way before
}

func kindsOf(checker Checker) map[string]Kind {
	kinds := map[string]Kind{}
	for _, kind := range checker.Kinds() {
		kinds[kind.Name] = kind
	}
	return kinds
}

// find takes in that a look has found it.
func (r *record) find(f Finding, o opinion, now time.Time, repairs bool) {
	describe(&r.Finding, f, o, repairs)
	r.repair, r.about, r.seen = f.Repair, o.kinds[f.Kind].About, now
	if r.Times > 0 && now.Sub(r.counted) < lookGap {
		return
	}
	r.Times++
	r.counted = now
	r.due = repairs && r.repair != nil && r.Times > 1 && !now.Before(r.next)
}

// describe says that a person has to repair it also when the agent may not.
func describe(to *v1.Finding, f Finding, o opinion, repairs bool) {
	to.Kind, to.Owner, to.Subject, to.Endpoint, to.Detail = f.Kind, o.owner, f.Subject, f.Endpoint, f.Detail
	to.Repair, to.Manual = o.kinds[f.Kind].Repair, f.Repair == nil || !repairs
}
