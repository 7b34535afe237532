package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// How long the agent waits for the proxy.
const (
	// atOnce limits a wait that holds up all other changes.
	atOnce = 100 * time.Millisecond
	// prepareTimeout limits a wait of the task, while rows deny what needs the rules.
	prepareTimeout = 10 * time.Second
	// awaitTimeout limits the wait of a change's caller. An earlier call to the proxy, of at most prepareTimeout, may be
	// under way.
	awaitTimeout = prepareTimeout + 2*time.Second
	// prepareAtStart limits the wait before the first write, for which all endpoints wait.
	prepareAtStart = 5 * time.Second
)

// errProxyTimeout is returned when the proxy does not acknowledge new rules in time.
var errProxyTimeout = fault.New(fault.Unavailable, "the proxy does not answer")

// layer7 knows which layer 7 rules the proxy has. Rule sets are compared by pointer: a number may be used again for
// another set.
//
//	a change needs rules --> Prepare, at once --> answered:   it is written
//	                                         '--> not yet:    it is written, and its rows deny until the loop has had the rules prepared
//	no row has them any more --> Release, by the loop
type layer7 struct {
	proxy Proxy
	task  *task.Task

	mu       sync.Mutex // guards the fields below
	prepared map[*engine.Layer7]bool
	failed   error // why the last rules were not prepared; nil when they were
}

func newLayer7(proxy Proxy) *layer7 {
	if proxy == nil {
		proxy = noProxy{}
	}
	return &layer7{proxy: proxy, prepared: map[*engine.Layer7]bool{}}
}

// missing returns the rules that the proxy does not have and can apply. Others are from before the agent's start:
// policies with such are refused.
func (x *layer7) missing(rules []*engine.Layer7) []*engine.Layer7 {
	return slices.DeleteFunc(rules, func(l *engine.Layer7) bool { return x.isPrepared(l) || x.proxy.Supports(l.Rules) != nil })
}

// withheld returns why the proxy does not have all of the rules; nil when it has.
func (x *layer7) withheld(rules []*engine.Layer7) error {
	for _, l := range rules {
		if !x.isPrepared(l) {
			return cmp.Or(x.proxy.Supports(l.Rules), x.lastError(), errProxyTimeout)
		}
	}
	return nil
}

func (x *layer7) isPrepared(l *engine.Layer7) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.prepared[l]
}

func (x *layer7) inUse() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.prepared) > 0
}

// lastError is why the last rules were not prepared.
func (x *layer7) lastError() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}

// prepare has the proxy get the rules. The error is errProxyTimeout when that takes longer.
func (x *layer7) prepare(ctx context.Context, rules []*engine.Layer7, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errProxyTimeout)
	defer cancel()
	all := map[uint32]model.Layer7{}
	for _, l := range rules {
		all[l.Number] = l.Rules
	}
	err := x.proxy.Prepare(ctx, all)
	if err != nil {
		err = fmt.Errorf("give the proxy its layer 7 rules: %w", withCause(context.Cause(ctx), err))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if context.Cause(ctx) == nil || errors.Is(err, errProxyTimeout) { // else the caller has left
		x.failed = err
	}
	if err == nil {
		x.failed = nil
		for _, l := range rules {
			x.prepared[l] = true
		}
	}
	return err
}

// withCause returns why the time was over, if it was, with what the proxy says about that: such as that it is not
// connected.
func withCause(cause, err error) error {
	switch {
	case cause == nil, errors.Is(err, cause):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// prepareAtOnceLocked has the proxy get rules that rows name for the first time, if it answers soon.
func (q *Queue) prepareAtOnceLocked() {
	missing := q.layer7.missing(q.view.engine.Layer7())
	if len(missing) == 0 || errors.Is(q.layer7.lastError(), errProxyTimeout) {
		return
	}
	if err := q.layer7.prepare(context.Background(), missing, atOnce); err != nil {
		q.log.Warn("what needs layer 7 rules is denied until the proxy has them", "error", err)
	}
}

// prepareAll has the proxy get all that the first write needs, if it does so in time.
func (q *Queue) prepareAll(ctx context.Context) {
	if q.view.lock(ctx) != nil {
		return // the first write fails, too
	}
	q.commit(q.takeCollected()...)
	rules := q.layer7.missing(q.view.engine.Layer7())
	q.view.unlock()
	if len(rules) == 0 {
		return
	}
	if err := q.layer7.prepare(ctx, rules, prepareAtStart); err != nil {
		q.log.Warn("what needs layer 7 rules is denied until the proxy has them", "error", err)
	}
}

// withholdLocked has rows deny in the place of rules that the proxy does not have. It returns how many the proxy can
// apply, and is to have yet.
func (q *Queue) withholdLocked() (awaited int) {
	awaited = len(q.layer7.missing(q.view.engine.Layer7())) // before: the loop may have some prepared meanwhile
	if q.view.engine.WithholdLayer7(func(l *engine.Layer7) bool { return !q.layer7.isPrepared(l) }) {
		q.written = false
	}
	err := q.layer7.withheld(q.view.engine.Layer7())
	switch {
	case err != nil:
		q.layer7.task.Trigger()
	case awaited > 0:
		q.task.Trigger() // to tell that they are here
	}
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	q.view.applied.Withheld = err
	return awaited
}

// awaitProxy returns when the proxy has all layer 7 rules that it can apply, or why it does not have them: it has said
// so, or has not answered in time.
func (q *Queue) awaitProxy(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitTimeout, errProxyTimeout)
	defer cancel()
	for {
		q.view.mu.RLock()
		awaited, news := q.view.applied.Awaited, q.view.news
		q.view.mu.RUnlock()
		if awaited == 0 {
			return nil
		}
		if err := q.layer7.lastError(); err != nil && !errors.Is(err, errProxyTimeout) {
			return err
		}
		select {
		case <-news:
		case <-ctx.Done():
			if err := q.layer7.lastError(); err != nil {
				return withCause(context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		}
	}
}

// releaseInterval is the time between two searches for rules that no row names any more. They stay with the proxy until
// then.
const releaseInterval = 5 * time.Second

// layer7Round gives the proxy the rules that rows wait for (these rows deny), and releases the rules that no row has
// any more. Nothing is released meanwhile: a rule that it prepares keeps its number.
func (q *Queue) layer7Round(ctx context.Context) error {
	if !q.isOpen() {
		return nil
	}
	if err := q.view.lock(ctx); err != nil {
		return err
	}
	rules := q.layer7.missing(q.view.engine.Layer7())
	err := q.releaseLocked()
	q.view.unlock()
	if err != nil || len(rules) == 0 {
		return err
	}
	if err := q.layer7.prepare(ctx, rules, prepareTimeout); err != nil {
		return err
	}
	q.task.Trigger()
	return nil
}

func (q *Queue) releaseLocked() error {
	unused := q.view.engine.UnusedLayer7()
	if len(unused) == 0 {
		return nil
	}
	inKernel, err := q.enforcer.Layer7()
	if err != nil {
		return err
	}
	free := slices.DeleteFunc(unused, func(l *engine.Layer7) bool { return inKernel[l.Number] })
	if len(free) == 0 {
		return nil
	}
	var numbers []uint32
	q.layer7.mu.Lock()
	for _, l := range free {
		delete(q.layer7.prepared, l)
		numbers = append(numbers, l.Number)
	}
	q.layer7.mu.Unlock()
	q.view.mu.Lock()
	q.view.engine.ReleaseLayer7(free)
	q.view.mu.Unlock()
	q.layer7.proxy.Release(numbers)
	return nil
}
