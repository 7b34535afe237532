// Package task runs the loops that live as long as the agent.
//
// A task is either a round that is run again and again ([Every]), or a function that waits by itself ([Forever],
// [Retry]). Each has a name, under which it is listed with the result of its last round; a round can be told to run
// now. A task that ends by itself stops the agent: a cell that has lost its loop is not healthy.
package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Round is what a task does again and again.
type Round struct {
	// Name is unique in the agent: the cell, a hyphen, and what the task does, as in "doctor-examine".
	Name string
	// Run is one round. Its result is the task's last error, and logged when it differs from the previous one.
	Run func(ctx context.Context) error
	// Interval is the time between the end of a round and the next one; 0 leaves the task to [Task.Trigger].
	Interval time.Duration
	// Later has the first round come after Interval, too.
	Later bool
	// Retry is the time after a round that failed. It doubles, up to MaxRetry, while rounds fail. 0 is Interval.
	Retry, MaxRetry time.Duration
}

// Status is what became of a task's rounds.
type Status struct {
	Name     string
	Runs     uint64        // rounds that have ended
	Failures int           // of the last rounds, in a row
	LastRun  time.Time     // when the last round ended; zero before the first
	Duration time.Duration // of the last round
	Next     time.Time     // when the next round is due; zero when it is not known
	Err      error         // of the last round
}

// Task is one loop. Its methods may be called concurrently.
type Task struct {
	log     *slog.Logger
	round   Round
	run     func(ctx context.Context) error
	trigger chan struct{} // holds one token while a round is asked for
	ctx     context.Context
	cancel  context.CancelFunc
	failed  chan error    // gets why the task has ended by itself
	ended   chan struct{} // closed when it has ended

	mu      sync.Mutex // guards the fields below
	started bool
	status  Status
}

// Every returns a task of rounds that has not started.
func Every(log *slog.Logger, round Round) *Task {
	t := newTask(log, round.Name)
	t.round, t.run = round, t.rounds
	return t
}

// Forever returns a task that runs until its context ends. An earlier return is a failure, also with nil.
func Forever(log *slog.Logger, name string, run func(ctx context.Context) error) *Task {
	t := newTask(log, name)
	t.run = run
	return t
}

// Retry returns a task that runs until its context ends, and again, after a pause, when it returns earlier. The error
// is logged when it differs from the previous one, or when the run took a minute.
func Retry(log *slog.Logger, name string, pause time.Duration, run func(ctx context.Context) error) *Task {
	t := newTask(log, name)
	t.run = func(ctx context.Context) error {
		for last := error(nil); ; {
			began := time.Now()
			err := run(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if last == nil || err == nil || err.Error() != last.Error() || time.Since(began) > time.Minute {
				log.Warn("task failed, and is run again", "task", name, "error", err)
			}
			last = err
			if !t.await(ctx, pause) {
				return ctx.Err()
			}
		}
	}
	return t
}

func newTask(log *slog.Logger, name string) *Task {
	t := &Task{log: log, trigger: make(chan struct{}, 1), failed: make(chan error, 1), ended: make(chan struct{}), status: Status{Name: name}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Start runs the task, when after is closed; nil is at once. A second call does nothing.
func (t *Task) Start(after <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started {
		return
	}
	t.started = true
	go func() {
		defer close(t.ended)
		if after != nil {
			select {
			case <-after:
			case <-t.ctx.Done():
				return
			}
		}
		err := t.run(t.ctx)
		if t.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it has ended")
		}
		t.record(time.Now(), err)
		t.failed <- fmt.Errorf("task %s: %w", t.status.Name, err)
	}()
}

// Stop ends the task and waits for it, as long as ctx lasts. Without a Start it does nothing.
func (t *Task) Stop(ctx context.Context) error {
	t.cancel()
	t.mu.Lock()
	started := t.started
	t.mu.Unlock()
	if !started {
		return nil
	}
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for task %s: %w", t.status.Name, ctx.Err())
	}
}

// StopAll stops the tasks side by side, and waits for them as long as ctx lasts.
func StopAll(ctx context.Context, tasks ...*Task) error {
	for _, t := range tasks {
		t.cancel()
	}
	var errs []error
	for _, t := range tasks {
		errs = append(errs, t.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Ended is closed when a task that was started has ended.
func (t *Task) Ended() <-chan struct{} { return t.ended }

// Failed gets why the task has ended by itself, once. It is never closed.
func (t *Task) Failed() <-chan error { return t.failed }

// Trigger asks for a round now, or right after the running one. It does not block. A task of
// [Forever] or [Retry] has none.
func (t *Task) Trigger() {
	select {
	case t.trigger <- struct{}{}:
	default:
	}
}

// HasRounds reports whether the task can be triggered.
func (t *Task) HasRounds() bool { return t.round.Run != nil }

// Status returns what became of the task so far.
func (t *Task) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

func (t *Task) rounds(ctx context.Context) error {
	wait := time.Duration(0)
	if t.round.Interval == 0 || t.round.Later {
		wait = t.next()
	}
	for {
		if !t.await(ctx, wait) {
			return ctx.Err()
		}
		began := time.Now()
		err := t.round.Run(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.record(began, err)
		wait = t.next()
	}
}

// await returns false when ctx has ended. A negative wait is for a trigger alone.
func (t *Task) await(ctx context.Context, wait time.Duration) bool {
	var timeout <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-t.trigger:
	case <-timeout:
	}
	return ctx.Err() == nil
}

// record writes down how a round ended.
func (t *Task) record(began time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.status.Err
	t.status.Runs++
	t.status.LastRun, t.status.Duration, t.status.Err = time.Now(), time.Since(began), err
	if err == nil {
		t.status.Failures = 0
		return
	}
	t.status.Failures++
	if t.round.Run != nil && (was == nil || was.Error() != err.Error()) {
		t.log.Warn("task failed, and is run again", "task", t.status.Name, "error", err)
	}
}

// next is the time to the next round; negative when only a trigger begins it.
func (t *Task) next() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := t.round.Interval
	if failures := t.status.Failures; failures > 0 && t.round.Retry > 0 {
		wait = min(t.round.Retry<<min(failures-1, 16), max(t.round.MaxRetry, t.round.Retry))
	}
	if wait == 0 {
		t.status.Next = time.Time{}
		return -1
	}
	t.status.Next = time.Now().Add(wait)
	return wait
}
