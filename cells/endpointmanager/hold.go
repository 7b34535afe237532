package endpointmanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// A start that finds many attachments which it cannot explain holds them: they are neither brought back nor removed, and their
// addresses are given to nobody, until somebody says that they are gone. A held attachment is an endpoint that stays in state
// restoring. So whatever looks for an endpoint finds it, and what ends an endpoint ends the hold: its DEL, a newer ADD of the
// pod or of the attachment, and [Holder].Accept. It is on record (phase held). At the next start a link without a record stays
// held, a lost link that is back is restored, and a failed restore is tried again. Only what is held because the ledger is of
// another network namespace is not on record.

// maxUnexplained is how many unexplained attachments a start takes down as usual.
const maxUnexplained = 4

// HoldReason is why an attachment is held.
type HoldReason string

// The reasons.
const (
	LinkLost       HoldReason = "link-lost"           // the ledger has it as whole, and the kernel says that its link is gone
	NotOnRecord    HoldReason = "not-on-record"       // its link is there, and the ledger does not have it
	OtherNamespace HoldReason = v1.HeldOtherNamespace // the ledger speaks of another network namespace
	RestoreFailed  HoldReason = "restore-failed"      // it and most others could not be brought back; the next start tries again
)

var holdReasons = []HoldReason{LinkLost, NotOnRecord, OtherNamespace, RestoreFailed}

// Held is an attachment that a start holds.
type Held struct {
	Endpoint Endpoint
	Reason   HoldReason
	Detail   string // one line, for people
}

// Holder knows what the start of the agent holds.
type Holder interface {
	// Held lists it by attachment.
	Held() []Held
	// Accept ends the hold of an attachment, or of all with the zero Attachment: it is taken down, and its record and link
	// removed. An attachment that is not held is [ErrNotHeld].
	Accept(ctx context.Context, a Attachment) DeleteResult
	// Confirm says that a container runtime has called from the network namespace of the agent. While the ledger speaks of
	// another namespace, that tells that the other one is gone. It returns when the agent serves, or when ctx ends: then the
	// agent goes on all the same.
	Confirm(ctx context.Context) error
}

// ErrNotHeld is returned for an attachment that the agent's start does not hold.
var ErrNotHeld = fault.New(fault.NotFound, "the agent holds no such attachment")

// hold is the set of workers whose attachments are held.
type hold struct {
	mu      sync.Mutex // guards the fields below
	workers map[*worker]Held
	unnamed map[string]*worker // by the name of the host end: those whose attachment is not known
}

func newHold() *hold { return &hold{workers: map[*worker]Held{}, unnamed: map[string]*worker{}} }

func (h *hold) begin(w *worker, held Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers[w] = held
	if link := held.Endpoint.Host.Name; w.attachment == Unnamed(link) {
		h.unnamed[link] = w
	}
}

// end reports whether the worker was held until now.
func (h *hold) end(w *worker) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.workers[w]
	delete(h.workers, w)
	if link := held.Endpoint.Host.Name; h.unnamed[link] == w {
		delete(h.unnamed, link)
	}
	return ok
}

// of returns the worker of the attachment, or all with the zero Attachment.
func (h *hold) of(a Attachment) (list []*worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.workers {
		if a == (Attachment{}) || a == w.attachment {
			list = append(list, w)
		}
	}
	return sorted(list)
}

// unnamedOf returns the worker that is held without its attachment, and whose host end has the name of this one's; or nil.
func (h *hold) unnamedOf(a Attachment) *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unnamed) == 0 {
		return nil
	}
	return h.unnamed[a.HostEnd()]
}

func (h *hold) list() (list []Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range h.workers {
		list = append(list, held)
	}
	slices.SortFunc(list, func(a, b Held) int {
		return strings.Compare(a.Endpoint.Spec.Attachment.String(), b.Endpoint.Spec.Attachment.String())
	})
	return list
}

// counts has a number for each reason, zeros too.
func (h *hold) counts() map[HoldReason]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := map[HoldReason]int{}
	for _, reason := range holdReasons {
		count[reason] = 0
	}
	for _, held := range h.workers {
		count[held.Reason]++
	}
	return count
}

// holdUnexplained decides what is held, and returns the list with the links that it adds to it.
//
// An attachment is unexplained when the ledger has it as whole and its link is lost, or when its link is there and the ledger
// does not have it. More than four of these, and more than half of what is counted, are held. Counted are the whole records and
// the links without a record: each attachment once. Not counted are records that a deletion record or a newer ADD of their pod
// and interface explains, records of what was half made or half deleted, their links, records of another boot, and what is held
// already.
func (m *manager) holdUnexplained(list []*revived, found []Endpoint) []*revived {
	var lost []*revived
	counted := 0
	for _, one := range list {
		if one.reason != "" || !one.isWhole() {
			continue
		}
		counted++
		if one.lost != nil {
			lost = append(lost, one)
		}
	}
	links := m.withoutRecord(list, found)
	unexplained, counted := len(lost)+len(links), counted+len(links)
	if !isTooMany(unexplained, counted) {
		return list
	}
	m.log.Error("most attachments cannot be explained: they are held, neither brought back nor removed, until a DEL or porin restore accept",
		"unexplained", unexplained, "counted", counted, "lost", len(lost), "links", len(links))
	for _, one := range lost {
		one.reason = LinkLost
	}
	for _, ep := range links {
		if one, err := m.reviveFound(ep); err != nil {
			m.log.Error("link is not held, and pruned", "ifname", ep.Host.Name, "error", err)
		} else {
			list = append(list, one)
		}
	}
	return list
}

// isTooMany tells whether so many of those counted are no accident of single attachments.
func isTooMany(n, counted int) bool { return n > maxUnexplained && 2*n > counted }

// isWhole reports whether the attachment is to be brought back, if its link is there.
func (r *revived) isWhole() bool {
	return !r.former && r.record.Phase == committed && r.newer == nil && !r.worker.recorded.Load() && !r.worker.isGone()
}

// withoutRecord returns those of the links found that belong to nothing on record: by their index, or by their name where the
// index of the record is not known.
func (m *manager) withoutRecord(list []*revived, found []Endpoint) (links []Endpoint) {
	indexes, names := map[int]bool{}, map[string]bool{}
	m.mu.Lock()
	for a := range m.roster.byAttachment { // also of deletion records
		names[a.HostEnd()] = true
	}
	m.mu.Unlock()
	for _, one := range list {
		if host := one.record.Endpoint.Host; one.former { // its link went with its boot
			delete(names, one.worker.attachment.HostEnd())
		} else if host.Index != 0 {
			indexes[host.Index] = true
			delete(names, one.worker.attachment.HostEnd())
		}
	}
	ids := m.numbersOnRecord(list)
	for _, ep := range found {
		isEntry := ep.Host.Name == "" // in the BPF maps, without a link
		if !indexes[ep.Host.Index] && !names[ep.Host.Name] && !(isEntry && ids[ep.ID]) {
			links = append(links, ep)
		}
	}
	return links
}

// numbersOnRecord are those of the endpoints that the ledger knows, or has known lately: an agent that was killed may have left
// map entries of these before their link was on record.
func (m *manager) numbersOnRecord(list []*revived) map[uint16]bool {
	ids := map[uint16]bool{}
	for _, one := range list {
		ids[one.record.Endpoint.ID] = true
	}
	buried, err := m.ledger.tombstones()
	if err != nil {
		m.log.Warn("what was deleted lately is not known", "error", err)
	}
	for _, rec := range buried {
		ids[rec.Endpoint.ID] = true
	}
	return ids
}

// reviveFound makes a worker for an attachment of which only the link is known.
func (m *manager) reviveFound(ep Endpoint) (*revived, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.ids.reserve(ep.ID) {
		id, err := m.ids.allocate()
		if err != nil {
			return nil, err
		}
		ep.ID = id
	}
	if m.roster.byAttachment[ep.Spec.Attachment] != nil { // a record has it, with another link
		ep.Spec.Attachment = Unnamed(ep.Host.Name)
	}
	return m.launchRevived(record{Phase: held, Held: NotOnRecord, Endpoint: ep}), nil
}

// keep holds the endpoint as it is, and what it has from everybody else. It runs in the worker's queue.
func (m *manager) keep(w *worker, reason HoldReason, detail string) {
	m.withhold(w.ep)
	m.held.begin(w, Held{Endpoint: w.ep, Reason: reason, Detail: detail})
	rec := m.recordOf(w, held, DeleteConfig{})
	rec.Held = reason
	if err := m.ledger.put(rec); err != nil {
		m.log.Warn("hold is not on record: the next start decides anew", attrs(w.ep), "error", err)
	}
	m.log.Warn("attachment is held", attrs(w.ep), "reason", reason, "detail", detail)
}

func (m *manager) withhold(ep Endpoint) {
	for _, step := range m.steps {
		if s, ok := step.(Withholder); ok {
			if err := s.Withhold(ep); err != nil {
				m.log.Warn("part of a held attachment belongs to somebody else", "step", step.Name(), attrs(ep), "error", err)
			}
		}
	}
}

// detailOf says why an attachment is held.
func (r *revived) detailOf() string {
	if host := r.record.Endpoint.Host; r.reason == NotOnRecord && host.Name == "" {
		return fmt.Sprintf("the BPF maps have it on link %d, which is not in this network namespace, and the ledger has no record of it", host.Index)
	}
	if r.reason == NotOnRecord {
		return fmt.Sprintf("link %s, index %d, is there, and the ledger has no record of it", r.record.Endpoint.Host.Name, r.record.Endpoint.Host.Index)
	}
	return fmt.Sprintf("the ledger has it, and its link is gone: %v", r.lost)
}

// learn takes over what a DEL says of an endpoint of which only the link is known: the IPAM plugin that gave its addresses.
func (w *worker) learn(cfg DeleteConfig) {
	if w.found && cfg.IPAM != (IPAMPlugin{}) {
		w.queue.push(func() { w.ep.Spec.IPAM, w.ep.Spec.NetNS, w.ep.Spec.ExternalIPAM = cfg.IPAM, cfg.NetNS, true })
	}
}

// endUnnamed takes down what is held under the link of the attachment without being known as it.
func (m *manager) endUnnamed(ctx context.Context, a Attachment, cfg DeleteConfig) (errs []error) {
	if w := m.held.unnamedOf(a); w != nil && !w.outlives(cfg) {
		return m.deleteWorker(ctx, w, cfg, startWatch(Del)).Errors
	}
	return nil
}

// Held implements [Holder].
func (m *manager) Held() []Held { return m.held.list() }

// Accept implements [Holder].
func (m *manager) Accept(ctx context.Context, a Attachment) (sum DeleteResult) {
	if err := m.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("accept what the restore holds: %w", err)}}
	}
	list := m.held.of(a)
	if a != (Attachment{}) && len(list) == 0 {
		return DeleteResult{Errors: []error{fmt.Errorf("accept %s: %w", a, ErrNotHeld)}}
	}
	var mu sync.Mutex // guards sum
	var group errgroup.Group
	group.SetLimit(recordsAtOnce)
	for _, w := range list {
		group.Go(func() error {
			result := m.deleteWorker(ctx, w, DeleteConfig{}, startWatch(Del))
			mu.Lock()
			defer mu.Unlock()
			sum.add(result)
			return nil
		})
	}
	_ = group.Wait()
	return sum
}

// find lists what the kernel has. Without that list nothing may be removed from it.
func (m *manager) find(ctx context.Context) (found []Endpoint, err error) {
	for _, step := range m.steps {
		finder, ok := step.(Finder)
		if !ok {
			continue
		}
		for try := range restoreTries {
			var next []Endpoint
			if next, err = finder.Find(ctx, slices.Clone(found)); err == nil {
				found = next
				break
			}
			select {
			case <-time.After(restoreWait << try):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		if err != nil {
			return nil, fmt.Errorf("list what the kernel has, before anything is removed from it: %s: %w", step.Name(), err)
		}
	}
	return found, nil
}
