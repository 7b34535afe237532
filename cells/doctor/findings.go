package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// minGap is the least time between two examinations for both to count: less, and they may have seen the same passing
// state.
const minGap = time.Second

// findings are the known disagreements, kept from one examination to the next.
type findings struct {
	repairs bool          // the agent repairs on its own
	pause   time.Duration // after the first repair of a finding, before the second

	mu       sync.Mutex // guards the fields below
	records  map[key]*record
	failures map[string]string    // by owner, the error of its last examination
	events   map[string][]Finding // by owner, of kinds with an Event, as its last examination found them
}

func newFindings(cfg Config) *findings {
	return &findings{
		repairs: cfg.Repair, pause: max(cfg.Interval, minGap), records: map[key]*record{}, failures: map[string]string{},
		events: map[string][]Finding{},
	}
}

// key is what makes two findings the same.
type key struct{ owner, kind, subject string }

// record is one finding.
type record struct {
	v1.Finding
	repair    func(context.Context) error
	about     string    // as its kind says
	seen      time.Time // the last examination that found it
	counted   time.Time // the last counted one
	repaired  time.Time // when the last repair ended
	tries     int       // repairs so far
	notBefore time.Time // no repair earlier
	due       bool      // found twice, and again since the last repair
}

// change is what is different after an examination by one checker.
type change struct {
	owner       string
	added, gone []v1.Finding
	failed      error // nil when it failed in the same way before
}

// update records the result of an examination of everything. After a failure, missing findings may still be there.
func (fs *findings) update(result checkResult, now time.Time) (c change) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c.owner = result.owner
	fs.recordEvents(result)
	found := map[key]bool{}
	for _, f := range result.found {
		k := key{result.owner, f.Kind, f.Subject}
		if found[k] {
			continue
		}
		found[k] = true
		r, known := fs.records[k]
		if !known {
			r = &record{Finding: v1.Finding{Since: now}}
			fs.records[k] = r
		}
		r.update(f, result, now, fs.repairs)
		if !known {
			c.added = append(c.added, r.Finding)
		}
	}
	c.gone = fs.removeGone(result, found)
	c.failed = fs.recordFailure(result)
	return c
}

func (fs *findings) recordEvents(result checkResult) {
	if result.err != nil {
		return
	}
	fs.events[result.owner] = nil
	for _, f := range slices.Concat(result.found, result.notes) {
		if result.kinds[f.Kind].Event {
			fs.events[result.owner] = append(fs.events[result.owner], f)
		}
	}
}

func (fs *findings) removeGone(result checkResult, found map[key]bool) (gone []v1.Finding) {
	if result.err != nil {
		return nil
	}
	for k, r := range fs.records {
		if k.owner == result.owner && !found[k] {
			gone = append(gone, r.Finding)
			delete(fs.records, k)
		}
	}
	slices.SortFunc(gone, byName)
	return gone
}

// recordFailure returns the error of the result, unless it is the one of the last time.
func (fs *findings) recordFailure(result checkResult) error {
	before := fs.failures[result.owner]
	delete(fs.failures, result.owner)
	if result.err == nil {
		return nil
	}
	fs.failures[result.owner] = result.err.Error()
	if result.err.Error() == before {
		return nil
	}
	return result.err
}

func (r *record) update(f Finding, result checkResult, now time.Time, repairs bool) {
	describe(&r.Finding, f, result, repairs)
	r.repair, r.about, r.seen = f.Repair, result.kinds[f.Kind].About, now
	if r.Times > 0 && now.Sub(r.counted) < minGap {
		return
	}
	r.Times++
	r.counted = now
	r.due = repairs && r.repair != nil && r.Times > 1 && !now.Before(r.notBefore)
}

// describe says that a person has to repair it also when the agent may not.
func describe(to *v1.Finding, f Finding, result checkResult, repairs bool) {
	to.Kind, to.Owner, to.Subject, to.Endpoint, to.Detail = f.Kind, result.owner, f.Subject, f.Endpoint, f.Detail
	to.Repair, to.Manual = result.kinds[f.Kind].Repair, f.Repair == nil || !repairs
}

// describe returns what was found, with what is known of it, and records nothing.
func (fs *findings) describe(result checkResult, found []Finding, now time.Time) (list []v1.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range found {
		finding := v1.Finding{Since: now, Times: 1}
		if r := fs.records[key{result.owner, f.Kind, f.Subject}]; r != nil {
			finding = r.Finding
		}
		describe(&finding, f, result, fs.repairs)
		list = append(list, finding)
	}
	slices.SortFunc(list, byName)
	return list
}

// ofOwner returns the known findings of one checker.
func (fs *findings) ofOwner(owner string) []v1.Finding {
	return fs.list(func(r *record) bool { return r.Owner == owner })
}

// list returns the chosen findings, by kind and subject.
func (fs *findings) list(chosen func(*record) bool) (list []v1.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, r := range fs.records {
		if chosen(r) {
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

// count returns the number of findings of each kind, also where it is 0. owners has the owner of each kind.
func (fs *findings) count(owners map[string]string) map[ownedKind]int {
	counts := map[ownedKind]int{}
	for name, owner := range owners {
		counts[ownedKind{name, owner}] = 0
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for k := range fs.records {
		counts[ownedKind{k.kind, k.owner}]++
	}
	return counts
}
