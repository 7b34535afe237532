package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// The pauses before a failed write is tried again.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

var errStopped = fault.New(fault.Unavailable, "the agent is stopping")

// Queue serializes all policy changes; a [View] reads them. It batches pending requests into one engine update and
// writes the result through the [Enforcer], in the caller's goroutine if the queue is idle, otherwise in its task. A
// change whose write fails stays in the engine, and the write is tried again. Rows have layer 7 rules only when the
// [Proxy] has them. Its methods may be called concurrently.
type Queue struct {
	log      *slog.Logger
	enforcer Enforcer
	view     *View
	layer7   *layer7
	names    *Names
	task     *task.Task
	opened   chan struct{} // closed when everything is restored: nothing is written before
	open     sync.Once
	remote   <-chan struct{} // closed when the endpoints of other nodes are known; nil without any

	mu      sync.Mutex // guards the field below
	waiting []*request

	// The holder of the view's lock uses these.
	pending []engine.Change // not written yet
	written bool            // everything has been, once
}

// request is a change that a caller asks for.
type request struct {
	update
	// anew writes everything.
	anew bool
	// collected says that no caller waits for it.
	collected bool
	// yields says that an ADD goes before it, once: it has policies of the API alone.
	yields bool
	done   chan error // with room for one
}

// NewQueue returns a queue that is not started. A nil enforcer writes nothing, without a proxy policies have no layer 7
// rules, and without names learned addresses are not kept.
func NewQueue(cfg engine.Config, enforcer Enforcer, proxy Proxy, names *Names, log *slog.Logger) *Queue {
	if names == nil {
		names = NewNames(Config{}, nil, log)
	}
	if enforcer == nil {
		enforcer = noEnforcer{}
	}
	q := &Queue{
		log: log, enforcer: enforcer, opened: make(chan struct{}), layer7: newLayer7(proxy), names: names,
		view: &View{enforcer: enforcer, writing: make(chan struct{}, 1), desired: newDesired(cfg), news: make(chan struct{})},
	}
	names.view, names.changed = q.view, q.writeNames
	q.task = task.Every(log, task.Round{Name: "policy-apply", Run: q.round, Retry: firstRetry, MaxRetry: lastRetry})
	q.layer7.task = task.Every(log, task.Round{Name: "policy-layer7", Run: q.layer7Round, Interval: releaseInterval, Retry: firstRetry, MaxRetry: lastRetry})
	return q
}

// View returns what reads the policies that the queue writes.
func (q *Queue) View() *View { return q.view }

// Task is the queue's loop. [Queue.Start] starts it.
func (q *Queue) Task() *task.Task { return q.task }

// Layer7Task is the loop that has the proxy get and release layer 7 rules. [Queue.Start] starts it.
func (q *Queue) Layer7Task() *task.Task { return q.layer7.task }

// Start begins the loops, and has the source tell of the endpoints of other nodes, if there is one.
func (q *Queue) Start(source RemoteSource) {
	if source != nil {
		q.remote = source.Begin(q)
	}
	q.task.Start(nil)
	q.layer7.task.Start(nil)
	q.names.task.Start(nil)
}

// Stop ends the loops, and waits for a caller that writes. Nothing is written afterwards: callers that wait get an
// error.
func (q *Queue) Stop(ctx context.Context) error {
	if err := task.StopAll(ctx, q.task, q.layer7.task, q.names.task); err != nil {
		return err
	}
	if err := q.names.save(); err != nil {
		q.log.Warn("what was learned of names last is lost with the agent", "error", err)
	}
	if err := q.view.lock(ctx); err != nil {
		return err
	}
	q.view.unlock()
	return nil
}

// Open writes everything that was collected so far, and returns when it is written. From now on requests are written
// when they come.
func (q *Queue) Open(ctx context.Context) error {
	q.awaitRemote(ctx)
	q.prepareAll(ctx)
	q.open.Do(func() { close(q.opened) })
	return q.set(ctx, update{})
}

func (q *Queue) isOpen() bool     { return isClosed(q.opened) }
func (q *Queue) hasStopped() bool { return isClosed(q.task.Ended()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// set returns when the update is written. After an error it stays in the engine, and is tried again. It waits until the
// queue is open.
func (q *Queue) set(ctx context.Context, u update) error {
	select {
	case <-q.opened:
	case <-ctx.Done():
		return fmt.Errorf("wait until all endpoints are restored: %w", ctx.Err())
	case <-q.task.Ended():
		return errStopped
	}
	if q.hasStopped() {
		return errStopped
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r := q.push(&request{update: u})
	q.serveInline()
	return q.wait(ctx, r)
}

// serveInline serves waiting requests in the caller's goroutine, when the view's lock is free: to wake the loop takes
// longer than a change. A write that failed before is left to the loop, which tries again now.
func (q *Queue) serveInline() {
	if !q.view.tryLock() {
		q.task.Trigger() // the holder of the lock may have taken the requests already
		return
	}
	defer q.view.unlock()
	if q.hasStopped() {
		return
	}
	if q.allWritten() {
		q.serve(q.take())
	}
	if !q.allWritten() {
		q.task.Trigger()
	}
}

// writeNames writes the current addresses of names. Before the queue is open they wait.
func (q *Queue) writeNames() {
	if q.isOpen() {
		q.serveInline()
	}
}

// allWritten is called by the holder of the view's lock.
func (q *Queue) allWritten() bool { return q.written && len(q.pending) == 0 }

// rewrite writes everything again, and returns when it is written.
func (q *Queue) rewrite(ctx context.Context) error {
	r := q.push(&request{anew: true})
	q.task.Trigger()
	return q.wait(ctx, r)
}

func (q *Queue) wait(ctx context.Context, r *request) error {
	select {
	case err := <-r.done: // also when ctx has ended meanwhile
		return err
	default:
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("write policies to the datapath: %w", ctx.Err())
	case <-q.task.Ended():
		return errStopped
	}
}

// collect queues the update without waiting for it: it is written when the queue opens, or soon. An ADD that waits goes
// before policies, as they take a while to compile.
func (q *Queue) collect(u update) *request {
	r := q.push(&request{update: u, collected: true, yields: len(u.policies.keys) > 0})
	q.task.Trigger()
	return r
}

func (q *Queue) push(r *request) *request {
	r.done = make(chan error, 1)
	q.mu.Lock()
	q.waiting = append(q.waiting, r)
	q.mu.Unlock()
	return r
}

// takeCollected takes the requests without a waiting caller.
func (q *Queue) takeCollected() (collected []*request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var others []*request
	for _, r := range q.waiting {
		if r.collected {
			collected = append(collected, r)
		} else {
			others = append(others, r) // the queue may be open by now
		}
	}
	q.waiting = others
	return collected
}

// take takes the requests that wait. Those that yield stay for the next round if an ADD waits.
func (q *Queue) take() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.waiting
	q.waiting = nil
	if !slices.ContainsFunc(waiting, func(r *request) bool { return !r.collected && len(r.endpoints.keys) > 0 }) {
		return waiting
	}
	var now []*request
	for _, r := range waiting {
		if !r.yields {
			now = append(now, r)
			continue
		}
		r.yields = false // the next time it goes with the others
		q.waiting = append(q.waiting, r)
		q.task.Trigger()
	}
	return now
}

// round writes what waits, and what is left of before. Its error is that something is left: the task runs it again.
// Before the queue is open, the engine has what was collected: half a million endpoints of other nodes do not wait in
// memory.
func (q *Queue) round(ctx context.Context) error {
	if err := q.view.lock(ctx); err != nil {
		return err
	}
	defer q.view.unlock()
	if !q.isOpen() {
		q.commit(q.takeCollected()...)
		return nil
	}
	q.serve(q.take())
	if !q.allWritten() {
		return q.view.Applied().Err
	}
	return nil
}

// serve makes one change of the requests.
func (q *Queue) serve(requests []*request) {
	q.commit(requests...)
	q.prepareAtOnceLocked()
	awaited := q.withholdLocked()
	if slices.ContainsFunc(requests, func(r *request) bool { return r.anew }) {
		q.written = false
	}
	err := q.write()
	for tries := 0; errors.Is(err, ErrNoRoom) && tries < maxGivenUp && q.substituteLargest(err); tries++ {
		awaited = q.withholdLocked()
		err = q.write()
	}
	if err == nil {
		q.view.tellAwaited(awaited)
	} else {
		err = fault.Wrap(kindOf(err), fmt.Errorf("write policies to the datapath: %w", err))
	}
	for _, r := range requests {
		r.done <- err
	}
}

// kindOf is unavailable for an error without a kind: the kernel may accept the change later.
func kindOf(err error) fault.Kind {
	if kind := fault.KindOf(err); kind != fault.Internal {
		return kind
	}
	return fault.Unavailable
}

// commit makes the changes in the engine, later ones in place of earlier ones of the same endpoint or policy.
func (q *Queue) commit(requests ...*request) {
	all := update{}
	for _, r := range requests {
		all.add(r.update)
	}
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	change, anew := q.view.apply(all, q.names.followLocked(all.domainRules()))
	if (anew || len(all.policies.keys) > 0) && q.names.endOthersLocked(q.view.domainRules()) {
		q.task.Trigger()
	}
	if anew {
		q.written = false
	}
	if q.written && !isEmpty(change) { // else everything is written anyway
		q.pending = append(q.pending, change)
	}
}

// substituteLargest has the engine do without a policy that the datapath has no room for, and reports whether there is
// a policy to give up.
func (q *Queue) substituteLargest(err error) bool {
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	if !q.view.substituteLargest(err, false) {
		return false
	}
	q.view.renew()
	q.names.endOthersLocked(q.view.domainRules())
	return true
}

// write has the enforcer write what is pending.
func (q *Queue) write() error {
	if q.allWritten() {
		q.names.confirmLocked()
		return nil
	}
	var change *engine.Change
	if q.written && len(q.pending) == 1 {
		change = &q.pending[0]
	}
	began := time.Now()
	err := q.enforcer.Apply(q.view.engine, change, q.view.locals)
	took := time.Since(began)
	q.view.mu.Lock()
	defer q.view.mu.Unlock()
	applied := &q.view.applied
	if err != nil {
		if applied.Failures++; applied.Err == nil {
			applied.Since = began
		}
		applied.Err = err
		q.written = false
		return err
	}
	q.pending, q.written = nil, true
	clear(q.view.unwritten)
	q.names.confirmLocked()
	applied.Revision++
	applied.Duration, applied.Err, applied.Since = took, nil, time.Time{}
	if q.layer7.inUse() {
		q.layer7.proxy.Changed()
	}
	return nil
}
