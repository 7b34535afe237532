package endpointmanager

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// maxUnexplained is how many unexplained attachments a start takes down as usual.
const maxUnexplained = 4

// comparer compares, at a start, what the ledger has with what the kernel has.
type comparer struct {
	log      *slog.Logger
	registry *registry
	records  *recorder
	steps    *stepRunner
	reader   *ledgerReader
}

// compare notes what the kernel has lost and what is to be held, and returns the list with the links that it adds to it.
func (c *comparer) compare(ctx context.Context, list []*restoration, isNew bool) ([]*restoration, error) {
	c.findLost(ctx, list)
	found, err := c.steps.find(ctx)
	if err != nil {
		return nil, err
	}
	return c.holdUnexplained(list, found, isNew), nil
}

// findLost notes which endpoints the kernel has lost.
func (c *comparer) findLost(ctx context.Context, list []*restoration) {
	var eps []endpoint.Endpoint
	for _, one := range list {
		if one.record.Phase == ledger.Committed && !one.former {
			eps = append(eps, one.record.Endpoint)
		}
	}
	lost, complete := c.steps.findLost(ctx, eps)
	for _, one := range list {
		one.lost = lost[one.worker.attachment]
		if complete && one.reason == LinkLost && one.lost == nil {
			one.reason = "" // it is back
		}
	}
}

// holdUnexplained decides what is held, and returns the list with the links that it adds to it.
//
// An attachment is unexplained when the ledger has it as whole and its link is lost, or when its link is there and the
// ledger does not have it. More than four of these, and more than half of what is counted, are held, and all of them
// when the ledger is new: it was lost. Counted are the whole records and the links without a record: each attachment
// once. Not counted are records that a deletion record or a newer ADD of their pod and interface explains, records of
// what was half made or half deleted, their links, records of another boot, and what is held already.
func (c *comparer) holdUnexplained(list []*restoration, found []endpoint.Endpoint, isNew bool) []*restoration {
	var lost []*restoration
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
	links := c.withoutRecord(list, found)
	unexplained, counted := len(lost)+len(links), counted+len(links)
	switch tooMany := isTooMany(unexplained, counted); {
	case !tooMany && !isNew:
		return list
	case !tooMany: // a few map entries without a link are of nobody
		if links = slices.DeleteFunc(links, isEntry); len(links) == 0 {
			return list
		}
		c.log.Error("the ledger is new, and attachments of an earlier one are there: they are held, neither brought back nor removed, until a DEL or porin restore accept",
			"links", len(links))
	default:
		c.log.Error("most attachments cannot be explained: they are held, neither brought back nor removed, until a DEL or porin restore accept",
			"unexplained", unexplained, "counted", counted, "lost", len(lost), "links", len(links))
	}
	recs := []ledger.Record{}
	for _, one := range lost {
		one.reason = LinkLost
		recs = append(recs, c.heldRecord(one))
	}
	for _, ep := range links {
		if one, err := c.addFound(ep); err != nil {
			c.log.Error("link is not held, and pruned", "ifname", ep.Host.Name, "error", err)
		} else {
			list = append(list, one)
			recs = append(recs, c.heldRecord(one))
		}
	}
	if err := c.records.ledger.PutAll(recs); err != nil { // all or none: a start that is killed meanwhile decides on all of them again
		c.log.Warn("holds are not on record: the next start decides anew", "error", err)
	}
	return list
}

// heldRecord is that of an endpoint that is about to be held. Nobody else has its worker yet.
func (c *comparer) heldRecord(one *restoration) ledger.Record {
	rec := c.records.recordOf(one.worker, ledger.Held, endpoint.DeleteConfig{})
	rec.Held = string(one.reason)
	return rec
}

// isTooMany reports whether so many of those counted are no accident of single attachments.
func isTooMany(n, counted int) bool { return n > maxUnexplained && 2*n > counted }

// isWhole reports whether the attachment is to be brought back, if its link is there.
func (e *restoration) isWhole() bool {
	return !e.former && e.record.Phase == ledger.Committed && e.newer == nil && !e.worker.hasDeletionRecord.Load() && !e.worker.isGone()
}

// withoutRecord returns those of the links found that belong to nothing on record: by their index, or by their name where the
// index of the record is not known.
func (c *comparer) withoutRecord(list []*restoration, found []endpoint.Endpoint) (links []endpoint.Endpoint) {
	indexes, names := map[int]bool{}, map[string]bool{}
	for _, w := range c.registry.all() { // also of deletion records
		names[w.attachment.HostEnd()] = true
	}
	for _, one := range list {
		if host := one.record.Endpoint.Host; one.former { // its link went with its boot
			delete(names, one.worker.attachment.HostEnd())
		} else if host.Index != 0 {
			indexes[host.Index] = true
			delete(names, one.worker.attachment.HostEnd())
		}
	}
	ids := c.numbersOnRecord(list)
	for _, ep := range found {
		if !indexes[ep.Host.Index] && !names[ep.Host.Name] && !(isEntry(ep) && ids[ep.ID]) {
			links = append(links, ep)
		}
	}
	return links
}

// isEntry reports whether only the BPF maps have the attachment, without a link.
func isEntry(ep endpoint.Endpoint) bool { return ep.Host.Name == "" }

// numbersOnRecord are those of the endpoints that the ledger knows, or has known lately: an agent that was killed may have left
// map entries of these before their link was on record.
func (c *comparer) numbersOnRecord(list []*restoration) map[uint16]bool {
	ids := map[uint16]bool{}
	for _, one := range list {
		ids[one.record.Endpoint.ID] = true
	}
	buried, err := c.records.ledger.Tombstones()
	if err != nil {
		c.log.Warn("what was deleted lately is not known", "error", err)
	}
	for _, rec := range buried {
		ids[rec.Endpoint.ID] = true
	}
	return ids
}

// addFound makes a worker for an attachment of which only the link is known.
func (c *comparer) addFound(ep endpoint.Endpoint) (*restoration, error) {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if !c.registry.ids.reserve(ep.ID) {
		id, err := c.registry.ids.allocate()
		if err != nil {
			return nil, err
		}
		ep.ID = id
	}
	if c.registry.workers.byAttachment[ep.Spec.Attachment] != nil { // a record has it, with another link
		ep.Spec.Attachment = endpoint.Unnamed(ep.Host.Name)
	}
	return c.reader.launch(ledger.Record{Phase: ledger.Held, Held: string(NotOnRecord), Endpoint: ep}), nil
}

// heldBecause says why an attachment is held.
func (e *restoration) heldBecause() string {
	if host := e.record.Endpoint.Host; e.reason == NotOnRecord && host.Name == "" {
		return fmt.Sprintf("the BPF maps have it on link %d, which is not in this network namespace, and the ledger has no record of it", host.Index)
	}
	if e.reason == NotOnRecord {
		return fmt.Sprintf("link %s, index %d, is there, and the ledger has no record of it", e.record.Endpoint.Host.Name, e.record.Endpoint.Host.Index)
	}
	return fmt.Sprintf("the ledger has it, and its link is gone: %v", e.lost)
}
