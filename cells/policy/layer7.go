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

// How long the proxy may take.
const (
	// prepareAtOnce is while nothing else can be written.
	prepareAtOnce = 100 * time.Millisecond
	// prepareTimeout is while the caller of a change waits, who may have less time.
	prepareTimeout = 10 * time.Second
	// prepareAtStart is before the first write, for which all endpoints wait.
	prepareAtStart = 5 * time.Second
)

// errProxySlow is why a change is refused that the proxy has not answered about in time.
var errProxySlow = fault.New(fault.Unavailable, "the proxy does not answer")

// unprepared is why a change was not made: its rows would have layer 7 rules that the proxy does not have.
type unprepared struct{ rules []*engine.Layer7 }

func (u *unprepared) Error() string {
	return fmt.Sprintf("the proxy does not have %d sets of layer 7 rules", len(u.rules))
}

// layer7 knows which layer 7 rules the proxy has. They are told apart by their pointers, so that rules which get the number of others are others.
//
//	a change needs rules --> Prepare, at once --> answered:   it is written
//	                                         '--> not yet:    it is taken back, its caller has the proxy prepare them, and makes it again
//	                                                          of a change that must not be refused, the rows deny until the loop has had them prepared
//	no row has them any more --> Release, by the loop
type layer7 struct {
	proxy Proxy
	task  *task.Task

	mu       sync.Mutex // guards the fields below
	prepared map[*engine.Layer7]bool
	held     map[*engine.Layer7]int // by callers who have them prepared: they are not released
	failed   error                  // why the last rules were not prepared; nil when they were
}

func newLayer7(proxy Proxy) *layer7 {
	if proxy == nil {
		proxy = noProxy{}
	}
	return &layer7{proxy: proxy, prepared: map[*engine.Layer7]bool{}, held: map[*engine.Layer7]int{}}
}

// missing returns those of the rules that the proxy does not have and can apply. Others are from before the agent's start: policies with such are refused.
func (x *layer7) missing(rules []*engine.Layer7) []*engine.Layer7 {
	return slices.DeleteFunc(rules, func(l *engine.Layer7) bool { return x.isPrepared(l) || x.proxy.Supports(l.Rules) != nil })
}

// withheld returns why the proxy does not have all of the rules; nil when it has.
func (x *layer7) withheld(rules []*engine.Layer7) error {
	for _, l := range rules {
		if !x.isPrepared(l) {
			return cmp.Or(x.proxy.Supports(l.Rules), x.lastError(), errProxySlow)
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

// hold keeps rules from being released until they are let go.
func (x *layer7) hold(rules []*engine.Layer7) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range rules {
		x.held[l]++
	}
}

func (x *layer7) letGo(rules []*engine.Layer7) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range rules {
		if x.held[l]--; x.held[l] == 0 {
			delete(x.held, l)
		}
	}
}

// prepare has the proxy get the rules. The error is errProxySlow when it takes longer.
func (x *layer7) prepare(ctx context.Context, rules []*engine.Layer7, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errProxySlow)
	defer cancel()
	all := map[uint32]model.Layer7{}
	for _, l := range rules {
		all[l.Number] = l.Rules
	}
	err := x.proxy.Prepare(ctx, all)
	if err != nil {
		err = fmt.Errorf("give the proxy its layer 7 rules: %w", sayWhy(context.Cause(ctx), err))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if context.Cause(ctx) == nil || errors.Is(err, errProxySlow) { // else the caller has left
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

// sayWhy returns why the time was over, if it was, with what the proxy says about that: such as that it is not connected.
func sayWhy(cause, err error) error {
	switch {
	case cause == nil, errors.Is(err, cause):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return cause
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// releasable returns those of the rules that nobody holds and the kernel does not have, as not prepared.
func (x *layer7) releasable(unused []*engine.Layer7, inKernel map[uint32]bool) (free []*engine.Layer7) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range unused {
		if x.held[l] == 0 && !inKernel[l.Number] {
			delete(x.prepared, l)
			free = append(free, l)
		}
	}
	return free
}

// withProxy makes a change, and again whenever it needs layer 7 rules that the proxy has got meanwhile. The change expects no turn.
func (q *Queue) withProxy(ctx context.Context, change func() error) error {
	var held []*engine.Layer7
	defer func() { q.layer7.letGo(held) }()
	for {
		err := change()
		needed, ok := errors.AsType[*unprepared](err)
		if !ok {
			return err
		}
		if err := q.view.beginTurn(ctx); err != nil {
			return err
		}
		known := !slices.ContainsFunc(needed.rules, func(l *engine.Layer7) bool { return !q.view.engine.KnowsLayer7(l) })
		if known { // else they were released: the numbers may be others'
			q.layer7.hold(needed.rules)
			held = append(held, needed.rules...)
		}
		q.view.endTurn()
		if !known {
			continue
		}
		if err := q.layer7.prepare(ctx, needed.rules, prepareTimeout); err != nil {
			return fault.Wrap(kindOf(err), err)
		}
	}
}

// prepareAll has the proxy get all that the first write needs, if it does so in time.
func (q *Queue) prepareAll(ctx context.Context) {
	if q.view.beginTurn(ctx) != nil {
		return // the first write fails, too
	}
	q.commit(q.takeCollected()...)
	rules := q.layer7.missing(q.view.engine.Layer7())
	q.layer7.hold(rules)
	q.view.endTurn()
	defer q.layer7.letGo(rules)
	if len(rules) == 0 {
		return
	}
	if err := q.layer7.prepare(ctx, rules, prepareAtStart); err != nil {
		q.log.Warn("what needs layer 7 rules is denied until the proxy has them", "error", err)
	}
}

// withhold has rows deny in the place of rules that the proxy does not have. It expects the turn.
func (q *Queue) withhold() {
	if q.view.engine.WithholdLayer7(func(l *engine.Layer7) bool { return !q.layer7.isPrepared(l) }) {
		q.written = false
	}
	err := q.layer7.withheld(q.view.engine.Layer7())
	if err != nil {
		q.layer7.task.Trigger()
	}
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	q.view.applied.Withheld = err
}

// releaseInterval is the time between two searches for rules that no row names any more. They stay with the proxy until then.
const releaseInterval = 5 * time.Second

// layer7Round has the proxy get rules that rows deny in the place of, and releases those that no row has any more.
func (q *Queue) layer7Round(ctx context.Context) error {
	if !q.isOpen() {
		return nil
	}
	if err := q.view.beginTurn(ctx); err != nil {
		return err
	}
	rules := q.layer7.missing(q.view.engine.Layer7())
	q.layer7.hold(rules)
	err := q.release()
	q.view.endTurn()
	defer q.layer7.letGo(rules)
	if err != nil || len(rules) == 0 {
		return err
	}
	if err := q.layer7.prepare(ctx, rules, prepareTimeout); err != nil {
		return err
	}
	q.task.Trigger()
	return nil
}

// release expects the turn.
func (q *Queue) release() error {
	unused := q.view.engine.UnusedLayer7()
	if len(unused) == 0 {
		return nil
	}
	inKernel, err := q.enforcer.Layer7()
	if err != nil {
		return err
	}
	free := q.layer7.releasable(unused, inKernel)
	if len(free) == 0 {
		return nil
	}
	q.view.mu.Lock()
	q.view.engine.ReleaseLayer7(free)
	q.view.mu.Unlock()
	var numbers []uint32
	for _, l := range free {
		numbers = append(numbers, l.Number)
	}
	q.layer7.proxy.Release(numbers)
	return nil
}

// setLayer7Key is called before the first policy is known.
func (q *Queue) setLayer7Key(key []byte) {
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	q.view.engine.SetLayer7Key(key)
}
