package endpointmanager

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// planned returns a record of container number n.
func planned(n int, phase ledger.Phase, change func(*recorded)) recorded {
	r := recorded{record: ledger.Record{Phase: phase, Endpoint: endpoint.Endpoint{
		ID: uint16(n), Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: fmt.Sprintf("c%d", n), IfName: "eth0"}},
		Host: endpoint.Interface{Index: n},
	}}}
	if change != nil {
		change(&r)
	}
	return r
}

func isLost(r *recorded) { r.lost = errors.New("no such link") }

func held(reason HoldReason) func(*recorded) {
	return func(r *recorded) { r.record.Held = string(reason) }
}

func inPod(began time.Duration) func(*recorded) {
	return func(r *recorded) { r.record.Endpoint.Spec.Pod.UID, r.record.Endpoint.Spec.Began = "u1", began }
}

// TestPlan decides about one record, beside a whole one.
func TestPlan(t *testing.T) {
	newer := inPod(20)
	for _, row := range []struct {
		name     string
		record   recorded
		beside   func(*recorded) // changes the whole record
		blind    bool            // not every step could list its lost endpoints
		action   action
		why      string
		hold     HoldReason
		config   endpoint.DeleteConfig
		replaced bool
	}{
		{name: "whole", record: planned(1, ledger.Committed, nil)},
		{name: "half made", record: planned(1, ledger.Intent, nil), action: planRemove, why: halfDone[ledger.Intent]},
		{name: "half deleted", record: planned(1, ledger.Deleting, func(r *recorded) {
			r.record.Config, r.record.Endpoint.Spec.Began = endpoint.DeleteConfig{Began: 5, NoIPRelease: true}, 7
		}), action: planRemove, why: halfDone[ledger.Deleting], config: endpoint.DeleteConfig{Began: 7, NoIPRelease: true}},
		{name: "lost", record: planned(1, ledger.Committed, isLost), action: planRemove, why: "no such link"},
		{name: "lost, of the agent itself", record: planned(1, ledger.Committed, func(r *recorded) {
			isLost(r)
			r.record.Endpoint.Spec.Kind = endpoint.KindHealth
		}), action: planRemove, why: "no such link", config: endpoint.DeleteConfig{NoIPRelease: true}},
		{name: "named by a deletion record", record: planned(1, ledger.Committed, func(r *recorded) { r.deleted = true }), action: planLeave, why: reasonDeleted},
		{name: "of another boot", record: planned(1, ledger.Committed, func(r *recorded) { r.former = true }), action: planLeave},
		{name: "superseded", record: planned(1, ledger.Committed, inPod(10)), beside: newer, action: planRemove, why: reasonSuperseded,
			config: endpoint.DeleteConfig{Began: 20}, replaced: true},
		{name: "superseded and half deleted", record: planned(1, ledger.Deleting, inPod(10)), beside: newer, action: planRemove, why: halfDone[ledger.Deleting], replaced: true},
		{name: "the newer container", record: planned(1, ledger.Committed, inPod(30)), beside: newer},
		{name: "held without a record", record: planned(1, ledger.Held, held(NotOnRecord)), action: planHold, hold: NotOnRecord},
		{name: "held, and its link is lost", record: planned(1, ledger.Held, func(r *recorded) { held(LinkLost)(r); isLost(r) }), action: planHold, hold: LinkLost},
		{name: "held, and its link is back", record: planned(1, ledger.Held, held(LinkLost))},
		{name: "held, and nobody can look", record: planned(1, ledger.Held, held(LinkLost)), blind: true, action: planHold, hold: LinkLost},
		{name: "held for a failed restore", record: planned(1, ledger.Held, held(RestoreFailed)), blind: true},
	} {
		decisions, links := plan(inventory{records: []recorded{row.record, planned(2, ledger.Committed, row.beside)}, surveyed: !row.blind})
		d := decisions[slices.IndexFunc(decisions, func(d decision) bool { return d.place == 0 })]
		want := decision{action: row.action, why: row.why, hold: row.hold, config: row.config, superseded: row.replaced}
		if diff := cmp.Diff(want, d, cmp.AllowUnexported(decision{})); diff != "" || len(links) != 0 {
			t.Errorf("%s: links %v (-want +got):\n%s", row.name, links, diff)
		}
	}
}

// TestPlanHolds: what cannot be explained is held when the ledger is new, or when more than half of it, and more than
// four, is lost.
func TestPlanHolds(t *testing.T) {
	for _, row := range []struct {
		whole, lost, links, entries int
		newLedger                   bool
		heldRecords, heldLinks      int
	}{
		{whole: 5, lost: 4},
		{lost: 4},
		{lost: 5, heldRecords: 5},
		{whole: 5, lost: 5},
		{whole: 4, lost: 5, heldRecords: 5},
		{whole: 5, links: 5},
		{whole: 4, links: 5, heldLinks: 5},
		{whole: 4, lost: 2, links: 3, heldRecords: 2, heldLinks: 3},
		{links: 1, newLedger: true, heldLinks: 1},
		{links: 1, entries: 3, newLedger: true, heldLinks: 1},
		{entries: 4, newLedger: true},
		{entries: 5, heldLinks: 5},
		{entries: 5, newLedger: true, heldLinks: 5},
	} {
		in := inventory{surveyed: true, newLedger: row.newLedger}
		for n := range row.whole {
			in.records = append(in.records, planned(n+1, ledger.Committed, nil))
		}
		for n := range row.lost {
			in.records = append(in.records, planned(n+100, ledger.Committed, isLost))
		}
		for n := range 3 { // explained records do not count
			in.records = append(in.records, planned(n+200, ledger.Intent, nil), planned(n+300, ledger.Held, held(NotOnRecord)))
		}
		for n := range row.links {
			in.links = append(in.links, endpoint.Endpoint{ID: uint16(n + 400), Host: endpoint.Interface{Name: fmt.Sprintf("por%d", n), Index: n + 400}})
		}
		for n := range row.entries {
			in.links = append(in.links, endpoint.Endpoint{ID: uint16(n + 500), Host: endpoint.Interface{Index: n + 500}})
		}
		in.links = append(in.links, endpoint.Endpoint{Host: endpoint.Interface{Name: "known", Index: 200}}) // of a record
		decisions, links := plan(in)
		holds := 0
		for _, d := range decisions {
			if d.isNew {
				holds++
			}
		}
		if holds != row.heldRecords || len(links) != row.heldLinks {
			t.Errorf("%+v: %d records and %d links are held", row, holds, len(links))
		}
		if !slices.IsSortedFunc(decisions, func(a, b decision) int { return int(a.action - b.action) }) {
			t.Errorf("%+v: something is removed before something else is brought back: %+v", row, decisions)
		}
	}
}
