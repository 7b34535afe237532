package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// A start that finds many attachments which it cannot explain holds them: they are neither brought back nor removed, and their
// addresses are given to nobody, until somebody says that they are gone. A held attachment is an endpoint in state
// held. So whatever looks for an endpoint finds it, and what ends an endpoint ends the hold: its DEL, a newer ADD of the
// pod or of the attachment, and [Holder].Accept. It is on record (phase held). At the next start a link without a record stays
// held, a lost link that is back is restored, and a failed restore is tried again.

// HoldReason is why an attachment is held.
type HoldReason string

// The reasons.
const (
	LinkLost      HoldReason = "link-lost"      // the ledger has it as whole, and the kernel says that its link is gone
	NotOnRecord   HoldReason = "not-on-record"  // its link is there, and the ledger does not have it
	RestoreFailed HoldReason = "restore-failed" // it and most others could not be brought back; the next start tries again
)

var holdReasons = []HoldReason{LinkLost, NotOnRecord, RestoreFailed}

// Held is an attachment that a start holds.
type Held struct {
	Endpoint endpoint.Endpoint
	Reason   HoldReason
	Detail   string // one line, for people
}

// Holder knows what the start of the agent holds.
type Holder interface {
	// Held lists it by attachment.
	Held() []Held
	// Accept ends the hold of an attachment, or of all with the zero Attachment: it is taken down, and its record and link
	// removed. An attachment that is not held is [ErrNotHeld].
	Accept(ctx context.Context, a endpoint.Attachment) DeleteResult
}

// ErrNotHeld is returned for an attachment that the agent's start does not hold.
var ErrNotHeld = fault.New(fault.NotFound, "the agent holds no such attachment")

// heldSet are the workers whose attachments are held.
type heldSet struct {
	mu      sync.Mutex // guards the fields below
	workers map[*worker]Held
	unnamed map[string]*worker // by the name of the host end: those whose attachment is not known
}

func newHeldSet() *heldSet {
	return &heldSet{workers: map[*worker]Held{}, unnamed: map[string]*worker{}}
}

func (h *heldSet) add(w *worker, held Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers[w] = held
	if link := held.Endpoint.Host.Name; w.attachment == endpoint.Unnamed(link) {
		h.unnamed[link] = w
	}
}

// remove reports whether the worker was held until now.
func (h *heldSet) remove(w *worker) bool {
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
func (h *heldSet) of(a endpoint.Attachment) (list []*worker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.workers {
		if a == (endpoint.Attachment{}) || a == w.attachment {
			list = append(list, w)
		}
	}
	return sorted(list)
}

// unnamedOf returns the worker that is held without its attachment, and whose host end has the name of this one's; or nil.
func (h *heldSet) unnamedOf(a endpoint.Attachment) *worker {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.unnamed) == 0 {
		return nil
	}
	return h.unnamed[a.HostEnd()]
}

func (h *heldSet) list() (list []Held) {
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

// count is the number of attachments that are held.
func (h *heldSet) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.workers)
}

// counts has a number for each reason, zeros too.
func (h *heldSet) counts() map[HoldReason]int {
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

// holder lists what is held and ends it.
type holder struct {
	log     *slog.Logger
	gate    *gate
	held    *heldSet
	deleter *deleter
}

// Held implements [Holder].
func (h *holder) Held() []Held { return h.held.list() }

// Accept implements [Holder].
func (h *holder) Accept(ctx context.Context, a endpoint.Attachment) (sum DeleteResult) {
	if err := h.gate.refusal(); err != nil {
		return DeleteResult{Errors: []error{fmt.Errorf("accept what the restore holds: %w", err)}}
	}
	list := h.held.of(a)
	if a != (endpoint.Attachment{}) && len(list) == 0 {
		return DeleteResult{Errors: []error{fmt.Errorf("accept %s: %w", a, ErrNotHeld)}}
	}
	var mu sync.Mutex // guards sum
	var group errgroup.Group
	group.SetLimit(deletionsAtOnce)
	for _, w := range list {
		group.Go(func() error {
			result := h.deleter.deleteWorker(ctx, w, endpoint.DeleteConfig{}, startWatch(endpoint.OperationDel))
			mu.Lock()
			defer mu.Unlock()
			sum.add(result)
			return nil
		})
	}
	_ = group.Wait()
	asked := "all"
	if a != (endpoint.Attachment{}) {
		asked = a.String()
	}
	h.log.Info("held attachments are accepted as gone", "asked", asked, "held", len(list), "removed", sum.Deleted,
		"failed", len(sum.Errors), "left", h.held.count())
	return sum
}

// accept is POST /v1/restore/accept.
func (s routes) accept(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.AcceptRequest](w, r)
	if err != nil {
		return err
	}
	a, err := s.heldBy(body.Endpoint)
	if err != nil {
		return err
	}
	result := s.Holder.Accept(r.Context(), a)
	for _, err := range result.Errors {
		if errors.Is(err, ErrNotHeld) {
			return err
		}
	}
	return answerDeletion(w, result)
}

// heldBy finds what is held by its text form, which is none of an attachment where that is not known, or by what porin
// status prints of it: a beginning of the container ID that fits one alone. The interface may be left out. The empty
// string is all.
func (s routes) heldBy(text string) (endpoint.Attachment, error) {
	if text == "" {
		return endpoint.Attachment{}, nil
	}
	for _, h := range s.Holder.Held() {
		if a := h.Endpoint.Spec.Attachment; a.String() == text { // also of a link whose container is not known
			return a, nil
		}
	}
	containerID, ifname, named := strings.Cut(text, ":")
	if err := endpoint.ValidateContainerID(containerID); err != nil {
		return endpoint.Attachment{}, err
	}
	var whole, begin []endpoint.Attachment
	for _, h := range s.Holder.Held() {
		a := h.Endpoint.Spec.Attachment
		switch {
		case named && a.IfName != ifname:
		case a.ContainerID == containerID:
			whole = append(whole, a)
		case strings.HasPrefix(a.ContainerID, containerID):
			begin = append(begin, a)
		}
	}
	fits := whole
	if len(whole) == 0 {
		fits = begin
	}
	switch len(fits) {
	case 0:
		return endpoint.Attachment{}, fmt.Errorf("accept %.64s: %w", text, ErrNotHeld)
	case 1:
		return fits[0], nil
	}
	return endpoint.Attachment{}, fault.New(fault.Conflict, fmt.Sprintf("accept %.64s: it fits %d of what the agent holds: %s", text, len(fits), namesOf(fits)))
}

// shownFits bounds how many attachments an error names.
const shownFits = 10

func namesOf(list []endpoint.Attachment) string {
	var names []string
	for _, a := range list[:min(len(list), shownFits)] {
		names = append(names, a.String())
	}
	text := strings.Join(names, ", ")
	if more := len(list) - shownFits; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func heldToV1(list []Held) v1.Held {
	out := v1.Held{Count: len(list)}
	for _, h := range list[:min(len(list), maxReported)] {
		ep := h.Endpoint
		out.Endpoints = append(out.Endpoints, v1.HeldEndpoint{
			Endpoint: ep.Spec.Attachment.String(), Link: ep.Host.Name, Addresses: v1.Addresses(ep.Addresses),
			Reason: string(h.Reason), Detail: h.Detail,
		})
	}
	return out
}
