package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// GC asks to take down what a network no longer has: the CNI verb GC (1.1.0).
type GC struct {
	Network string                       // attachments of others are not touched
	Valid   map[endpoint.Attachment]bool // these stay
	Began   time.Duration                // when the caller began, on CLOCK_BOOTTIME; what began later stays. 0 is now
	DryRun  bool                         // only tell
	// InUse returns the network namespaces that have a process, by cookie. It is asked for a call that wants much. nil where
	// the agent does not see the node's processes.
	InUse func() (map[uint64]bool, error)
}

// GCResult says what a [GC] did.
type GCResult struct {
	Stale    []endpoint.Attachment // what is not valid
	Withheld error                 // why something of it was not deleted
	DeleteResult
}

// collector takes down what a network no longer has. It remembers the last call of each network that was too large for one.
type collector struct {
	share    float64 // Config.GCShare
	clock    *clock
	gate     *gate
	registry *registry
	deleter  *deleter

	mu      sync.Mutex // guards the field below
	pending map[string]withheld
}

// withheld is what a call named, and when.
type withheld struct {
	named map[endpoint.Attachment]bool
	at    time.Duration
}

// inARow is how long after the first call a second one counts as the next.
const inARow = time.Hour

// Collect implements [Manager].
//
// A caller that comes with an empty list by mistake would cut the whole node off. So a call that wants more than
// Config.GCShare of the network's endpoints takes down only those whose network namespace no process has any more, as the
// kernel shows it. The rest is withheld, and the next call of that network takes down what both of them name. A dry run
// counts as no call.
func (c *collector) Collect(ctx context.Context, gc GC) (result GCResult) {
	if err := c.gate.refusal(); err != nil {
		result.Errors = []error{fmt.Errorf("collect garbage of network %q: %w", gc.Network, err)}
		return result
	}
	gc.Began = c.clock.startTime(gc.Began)
	stale, live := c.stale(gc)
	for _, w := range stale {
		result.Stale = append(result.Stale, w.attachment)
	}
	if gc.DryRun {
		return result
	}
	stale, result.Withheld = c.limit(gc, stale, live)
	for _, w := range stale {
		result.add(c.deleter.removeEndpoint(ctx, w.attachment, endpoint.DeleteConfig{Began: gc.Began}, startWatch(endpoint.OperationDel)))
	}
	return result
}

// stale returns the workers of the network that are to go, in order, and how many it has.
func (c *collector) stale(gc GC) (stale []*worker, live int) {
	for _, w := range c.registry.all() {
		if w.spec.Network != gc.Network || w.isReserved() {
			continue
		}
		live++
		if !gc.Valid[w.attachment] && w.beganAt() < gc.Began {
			stale = append(stale, w)
		}
	}
	return stale, live
}

// limit returns what may be taken down of what is stale, and why the rest is not.
func (c *collector) limit(gc GC, stale []*worker, live int) ([]*worker, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, second := c.pending[gc.Network]
	delete(c.pending, gc.Network)
	if float64(len(stale)) <= c.share*float64(live) {
		return stale, nil
	}
	if second && gc.Began-before.at < inARow {
		return slices.DeleteFunc(stale, func(w *worker) bool { return !before.named[w.attachment] }), nil
	}
	empty, rest, why := withoutProcess(gc, stale)
	if len(rest) == 0 {
		return empty, nil
	}
	if c.pending == nil {
		c.pending = map[string]withheld{}
	}
	named := map[endpoint.Attachment]bool{}
	for _, w := range rest {
		named[w.attachment] = true
	}
	c.pending[gc.Network] = withheld{named, gc.Began}
	return empty, fmt.Errorf("%d of the %d endpoints of network %q are not valid, which is more than %.0f %%, and %d of them stay: %s. Call again to take them down",
		len(stale), live, gc.Network, 100*c.share, len(rest), why)
}

// withoutProcess parts the endpoints whose namespace is known and has no process from the rest, and says what is with that.
func withoutProcess(gc GC, stale []*worker) (empty, rest []*worker, why string) {
	if gc.InUse == nil {
		return nil, stale, "the agent does not see the processes of the node"
	}
	inUse, err := gc.InUse()
	if err != nil {
		return nil, stale, fmt.Sprintf("the processes of the node: %v", err)
	}
	for _, w := range stale {
		if cookie := w.spec.NetNSCookie; cookie != 0 && !inUse[cookie] {
			empty = append(empty, w)
		} else {
			rest = append(rest, w)
		}
	}
	return empty, rest, "a process is in their network namespace, or it is not known"
}

func (s routes) collect(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.GCRequest](w, r)
	if err != nil {
		return err
	}
	gc, err := gcFromV1(body)
	if err != nil {
		return err
	}
	result := s.Manager.Collect(r.Context(), gc)
	for _, err := range result.Errors {
		if errors.Is(err, ErrStopped) || errors.Is(err, ErrPending) {
			return err
		}
	}
	return httpx.JSON(w, http.StatusOK, result.toV1())
}

// gcFromV1 refuses a call without a network: it would mean those that came without one.
func gcFromV1(body v1.GCRequest) (GC, error) {
	gc := GC{Network: body.Network, Valid: map[endpoint.Attachment]bool{}, Began: time.Duration(body.Began), DryRun: body.DryRun}
	if body.Network == "" {
		return GC{}, fault.New(fault.Invalid, "network: want the name of a CNI network configuration")
	}
	if body.Began < 0 {
		return GC{}, errBegan
	}
	for _, text := range body.Valid {
		a, err := endpoint.ParseAttachment(text)
		if err != nil {
			return GC{}, err
		}
		gc.Valid[a] = true
	}
	return gc, nil
}

func (r GCResult) toV1() v1.GCResult {
	deleted := resultToV1(r.DeleteResult)
	out := v1.GCResult{
		Stale: []string{}, Deleted: deleted.Deleted, Errors: deleted.Errors, Details: deleted.Details, Withheld: errorText(r.Withheld),
	}
	for _, a := range r.Stale {
		out.Stale = append(out.Stale, a.String())
	}
	return out
}
