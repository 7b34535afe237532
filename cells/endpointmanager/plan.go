package endpointmanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// few is how many unexplained attachments of a ledger that is not new a start removes as usual.
const few = 4

// isMost reports whether n of the counted attachments are too many to be single accidents.
func isMost(n, counted int) bool { return n > few && 2*n > counted }

// Why an endpoint is not brought back.
const (
	reasonFormer     = "its node has booted since"
	reasonDeleted    = "it was deleted while no agent ran"
	reasonSuperseded = "a newer container of its pod has its place"
)

// halfDone is why a record of that phase is undone at a start.
var halfDone = map[ledger.Phase]string{
	ledger.Intent:   "its ADD was not whole when the agent ended",
	ledger.Deleting: "its DEL was not whole when the agent ended",
}

// recorded is an attachment of the ledger, as a start finds it.
type recorded struct {
	record  ledger.Record
	former  bool  // it is of another boot: its link is gone, and no time in it counts
	deleted bool  // it is gone, or its deletion is under way: a deletion record names it
	lost    error // the part that the kernel has lost for good
}

// inventory is all that a start knows when it decides.
type inventory struct {
	records   []recorded
	links     []endpoint.Endpoint   // of the kernel, with and without a record
	known     []endpoint.Attachment // of records and deletion records
	buried    []ledger.Record       // recent deletions
	surveyed  bool                  // each step could list its lost endpoints
	newLedger bool                  // nothing was ever written to it
}

// action is what becomes of an attachment at a start.
type action int

const (
	planAdopt action = iota
	planHold
	planRemove
	planLeave // it is gone, or its deletion is under way
)

// decision is what becomes of one attachment, and why.
type decision struct {
	action     action
	place      int                   // of its record in the inventory
	hold       HoldReason            // of planHold
	isNew      bool                  // the hold is not on record
	why        string                // of the others, for the report; "" is not reported
	config     endpoint.DeleteConfig // of planRemove
	superseded bool                  // by a newer container, whatever becomes of it
}

// plan decides what a start makes of the records and of the links without a record, which it holds. The decisions are
// in the order in which they are carried out. Removals come last, after the others have taken their addresses.
//
// Attachments that have to go anyway are decided first. Of the rest, an attachment is unexplained when its link is
// lost, or when its link has no record. One rule says whether these are held: the ledger is new, or more than half of
// it is lost, and more than four.
func plan(in inventory) (decisions []decision, links []endpoint.Endpoint) {
	decisions = make([]decision, len(in.records))
	// When the ADD of the newest container of each pod began that is on record as whole. The ledger may hold the older ones
	// still: their deletion failed, or could not be written.
	newest := map[podInterface]time.Duration{}
	for _, r := range in.records {
		place, ok := podInterfaceOf(r.record.Endpoint.Spec)
		hold := HoldReason(r.record.Held)
		if ok && (r.record.Phase == ledger.Committed || hold == LinkLost || hold == RestoreFailed) {
			newest[place] = max(newest[place], r.record.Endpoint.Spec.Began)
		}
	}
	counted, lost := 0, []int{}
	for i, r := range in.records {
		d := decideExplained(r, newest, in.surveyed)
		d.place = i
		if d.action == planAdopt {
			counted++
			if r.lost != nil {
				lost = append(lost, i)
				d.action, d.why, d.config = planRemove, r.lost.Error(), configOfLoss(r.record.Endpoint, r.lost)
			}
		}
		decisions[i] = d
	}
	links = withoutRecord(in)
	most := isMost(len(lost)+len(links), counted+len(links))
	if !most && in.newLedger {
		links = slices.DeleteFunc(links, isEntry) // a few map entries without a link belong to no container
	}
	if !most && !in.newLedger {
		links = nil
	}
	if most {
		for _, i := range lost {
			decisions[i] = decision{action: planHold, place: i, hold: LinkLost, isNew: true}
		}
	}
	slices.SortStableFunc(decisions, func(a, b decision) int { return cmp.Compare(a.action, b.action) })
	return decisions, links
}

// decideExplained decides about an attachment that its own record explains. The default is to adopt it.
func decideExplained(r recorded, newest map[podInterface]time.Duration, surveyed bool) (d decision) {
	place, inPod := podInterfaceOf(r.record.Endpoint.Spec)
	newer, ok := newest[place]
	d.superseded = inPod && ok && newer > r.record.Endpoint.Spec.Began
	phase, hold := r.record.Phase, HoldReason(r.record.Held)
	if phase == ledger.Held && (hold == RestoreFailed || hold == LinkLost) { // it is whole, but for the link
		phase = ledger.Committed
	}
	isBack := hold == RestoreFailed || hold == LinkLost && surveyed && r.lost == nil
	switch {
	case r.deleted || r.former: // the latter go before anything of this boot is looked at
		d.action, d.why = planLeave, reasonDeleted
		if r.former {
			d.why = ""
		}
	case d.superseded && phase == ledger.Committed:
		d.action, d.why, d.config = planRemove, reasonSuperseded, endpoint.DeleteConfig{Began: newer}
	case r.record.Phase == ledger.Held && !isBack:
		d.action, d.hold = planHold, hold
	case phase != ledger.Committed:
		d.action, d.why, d.config = planRemove, halfDone[phase], configOfRecord(r.record)
	}
	return d
}

// configOfRecord returns the config for a deletion that an earlier agent began, perhaps before this life, whose undo
// failed.
func configOfRecord(rec ledger.Record) endpoint.DeleteConfig {
	cfg := rec.Config
	if cfg.Began > 0 {
		cfg.Began = max(cfg.Began, rec.Endpoint.Spec.Began)
	}
	return cfg
}

// configOfLoss returns the config for the removal of an endpoint that cannot be brought back. An address that was never
// taken is not released. A health endpoint is made again with its address: a released address would be in quarantine.
func configOfLoss(ep endpoint.Endpoint, why error) endpoint.DeleteConfig {
	return endpoint.DeleteConfig{NoIPRelease: ep.Spec.Kind == endpoint.KindHealth || errors.Is(why, ErrAddressNotTaken)}
}

// withoutRecord returns the links that belong to no record: by their index, or by their name where the index of the
// record is not known. An agent that was killed may have left map entries of an endpoint before its link was on record.
func withoutRecord(in inventory) (links []endpoint.Endpoint) {
	indexes, names, numbers := map[int]bool{}, map[string]bool{}, map[uint16]bool{}
	for _, a := range in.known {
		names[a.HostEnd()] = true
	}
	for _, r := range in.records {
		ep := r.record.Endpoint
		numbers[ep.ID] = true
		switch {
		case r.former: // its link went with its boot
			delete(names, ep.Spec.Attachment.HostEnd())
		case ep.Host.Index != 0:
			indexes[ep.Host.Index] = true
			delete(names, ep.Spec.Attachment.HostEnd())
		}
	}
	for _, rec := range in.buried {
		numbers[rec.Endpoint.ID] = true
	}
	for _, ep := range in.links {
		if !indexes[ep.Host.Index] && !names[ep.Host.Name] && !(isEntry(ep) && numbers[ep.ID]) {
			links = append(links, ep)
		}
	}
	return links
}

// isEntry reports whether only the BPF maps have the attachment, without a link.
func isEntry(ep endpoint.Endpoint) bool { return ep.Host.Name == "" }

// heldBecause says why an attachment is held.
func heldBecause(reason HoldReason, ep endpoint.Endpoint, lost error) string {
	switch {
	case reason == NotOnRecord && isEntry(ep):
		return fmt.Sprintf("the BPF maps have it on link %d, which is not in this network namespace, and the ledger has no record of it", ep.Host.Index)
	case reason == NotOnRecord:
		return fmt.Sprintf("link %s, index %d, is there, and the ledger has no record of it", ep.Host.Name, ep.Host.Index)
	}
	if lost == nil { // it is held since an earlier start, and this one could not look
		return "the ledger has it, and its link was gone at an earlier start"
	}
	return fmt.Sprintf("the ledger has it, and its link is gone: %v", lost)
}
