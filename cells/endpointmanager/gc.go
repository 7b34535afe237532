package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// GC asks to take down the endpoints that a network no longer has: the CNI verb GC (1.1.0).
type GC struct {
	Network string                       // attachments of others are not touched
	Valid   map[endpoint.Attachment]bool // these stay
	Began   time.Duration                // when the caller began, on CLOCK_BOOTTIME; later endpoints stay. 0 is now
	DryRun  bool                         // only tell
}

// GCResult says what a [GC] did.
type GCResult struct {
	Stale    []endpoint.Attachment // endpoints that are not valid
	Withheld error                 // why some of them were not deleted
	DeleteResult
}

// withheld are the stale endpoints of a GC call that was refused, and when it began.
type withheld struct {
	named map[endpoint.Attachment]bool
	at    time.Duration
}

// inARow is how long after the first call a second one counts as the next.
const inARow = time.Hour

// Collect implements [Manager].
//
// A caller that comes with an empty list by mistake would cut the whole node off. So a call that wants more than
// Config.GCShare of the network's endpoints takes down none of them. The next call of that network takes down what both
// of them name. A dry run counts as no call.
func (m *manager) Collect(ctx context.Context, gc GC) (result GCResult) {
	if err := m.registry.refusal(); err != nil {
		result.Errors = []error{fmt.Errorf("collect garbage of network %q: %w", gc.Network, err)}
		return result
	}
	gc.Began = m.startTime(gc.Began)
	var stale []*managed
	all := m.registry.list(func(e *managed) bool { return e.spec.Network == gc.Network && !e.isReserved() })
	for _, e := range all {
		if !gc.Valid[e.attachment] && m.registry.beganAt(e) < gc.Began {
			stale = append(stale, e)
			result.Stale = append(result.Stale, e.attachment)
		}
	}
	if gc.DryRun {
		return result
	}
	stale, result.Withheld = m.limit(gc, stale, len(all))
	for _, e := range stale {
		result.add(m.removeEndpoint(ctx, e.attachment, endpoint.DeleteConfig{Began: gc.Began}, startWatch(endpoint.OperationDel)))
	}
	return result
}

// limit returns the stale endpoints that may be taken down, and why the rest may not.
func (m *manager) limit(gc GC, stale []*managed, live int) ([]*managed, error) {
	var before withheld
	var second bool
	m.registry.withLock(func() {
		before, second = m.registry.withheld[gc.Network]
		delete(m.registry.withheld, gc.Network)
	})
	if float64(len(stale)) <= m.cfg.GCShare*float64(live) {
		return stale, nil
	}
	if second && gc.Began-before.at < inARow {
		return slices.DeleteFunc(stale, func(e *managed) bool { return !before.named[e.attachment] }), nil
	}
	named := map[endpoint.Attachment]bool{}
	for _, e := range stale {
		named[e.attachment] = true
	}
	m.registry.withLock(func() { m.registry.withheld[gc.Network] = withheld{named, gc.Began} })
	return nil, fmt.Errorf("%d of the %d endpoints of network %q are not valid, which is more than %.0f %%, so they stay. Call again to take them down",
		len(stale), live, gc.Network, 100*m.cfg.GCShare)
}

func (s routes) collect(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.GCRequest](w, r)
	if err != nil {
		return err
	}
	gc := GC{Network: body.Network, Valid: map[endpoint.Attachment]bool{}, Began: time.Duration(body.Began), DryRun: body.DryRun}
	if body.Network == "" { // which would mean the endpoints without a network
		return fault.New(fault.Invalid, "network: want the name of a CNI network configuration")
	}
	if body.Began < 0 {
		return errBegan
	}
	for _, text := range body.Valid {
		a, err := endpoint.ParseAttachment(text)
		if err != nil {
			return err
		}
		gc.Valid[a] = true
	}
	result := s.Manager.Collect(r.Context(), gc)
	for _, err := range result.Errors {
		if errors.Is(err, ErrStopped) || errors.Is(err, ErrPending) {
			return err
		}
	}
	deleted := resultToV1(result.DeleteResult)
	out := v1.GCResult{
		Stale: []string{}, Deleted: deleted.Deleted, Errors: deleted.Errors, Details: deleted.Details, Withheld: fault.Text(result.Withheld),
	}
	for _, a := range result.Stale {
		out.Stale = append(out.Stale, a.String())
	}
	return httpx.JSON(w, http.StatusOK, out)
}
