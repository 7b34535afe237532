package endpointmanager

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// A start holds attachments that it cannot explain, when they are many: it neither restores nor removes them, and keeps
// their addresses, until an administrator says that they are gone. A held attachment is an endpoint in state held. So
// each look-up finds it, and the calls that end an endpoint end the hold: its DEL, a newer ADD of the pod or of the
// attachment, and [Holder].Accept. It is on record (phase held). The next start keeps holding a link without a record,
// restores an endpoint whose lost link is back, and tries a failed restore again.

// HoldReason is why an attachment is held.
type HoldReason string

// The reasons.
const (
	LinkLost      HoldReason = "link-lost"      // the ledger has it as whole, and the kernel says that its link is gone
	NotOnRecord   HoldReason = "not-on-record"  // its link is there, and its record is not
	RestoreFailed HoldReason = "restore-failed" // it and most others could not be brought back; the next start tries again
)

var holdReasons = []HoldReason{LinkLost, NotOnRecord, RestoreFailed}

// Held is an attachment that a start holds.
type Held struct {
	Endpoint endpoint.Endpoint
	Reason   HoldReason
	Detail   string // one line, for people
}

// Holder knows the attachments that the start of the agent holds.
type Holder interface {
	// Held lists them by attachment.
	Held() []Held
	// Accept ends the hold of an attachment, or of all with the zero Attachment: it is taken down, and its record and
	// link removed. An attachment that is not held is [ErrNotHeld].
	Accept(ctx context.Context, a endpoint.Attachment) DeleteResult
}

// ErrNotHeld is returned for an attachment that the agent's start does not hold.
var ErrNotHeld = fault.New(fault.NotFound, "the agent holds no such attachment")

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
	return answerDeletion(w, s.Holder.Accept(r.Context(), a))
}

// heldBy finds what is held by its text form, or by what porin status prints of it: a beginning of the container ID
// that fits one alone. The interface may be left out. The empty string is all.
func (s routes) heldBy(text string) (all endpoint.Attachment, err error) {
	if text == "" {
		return all, nil
	}
	containerID, ifname, named := strings.Cut(text, ":")
	var fits []string
	var found endpoint.Attachment
	for _, h := range s.Holder.Held() {
		a := h.Endpoint.Spec.Attachment
		if a.String() == text { // also of a link whose container is not known
			return a, nil
		}
		if strings.HasPrefix(a.ContainerID, containerID) && (!named || a.IfName == ifname) {
			fits, found = append(fits, a.String()), a
		}
	}
	if err := endpoint.ValidateContainerID(containerID); err != nil {
		return all, err
	}
	switch len(fits) {
	case 0:
		return all, fmt.Errorf("accept %.64s: %w", text, ErrNotHeld)
	case 1:
		return found, nil
	}
	const shown = 10
	return all, fault.New(fault.Conflict, fmt.Sprintf("accept %.64s: it fits %d of what the agent holds, such as %s", text, len(fits), strings.Join(fits[:min(len(fits), shown)], ", ")))
}
