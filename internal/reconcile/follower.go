package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"porin.dev/porin/internal/task"
)

const (
	settle        = 10 * time.Millisecond // the time in which events of an owner are one comparison
	burst         = 5                     // repairs of an owner at once
	repairPause   = 30 * time.Second      // then between two repairs
	repairTimeout = 10 * time.Second
	retryPause    = time.Second // after a repair that failed, and before the next try to watch
	parallel      = 8           // owners that are compared and repaired side by side
)

// Contested is what a finding says of an owner for which [Follower.IsContested] holds.
const Contested = "another program changes it after each repair, and the agent tries every 30 s"

// Source is what a [Follower] follows.
type Source[O comparable] interface {
	// Watch names the owners of things that may have changed, from now on. The channel is closed when ctx ends, and when
	// something was missed. It is read to its end.
	Watch(ctx context.Context) (<-chan O, error)
	// Owners are all to compare when the watch has begun.
	Owners() []O
	// Differs reports whether the owner lacks something that Repair can make. An owner that is being made or taken down
	// does not.
	Differs(owner O) (bool, error)
	// Repair makes what the owner lacks, in its turn.
	Repair(ctx context.Context, owner O) error
}

// Follower repairs what other programs take from owners, as soon as it hears of it.
type Follower[O comparable] struct {
	source Source[O]
	log    *slog.Logger
	slots  chan struct{} // has a token for each owner that is compared or repaired

	mu     sync.Mutex // guards the field below and what it leads to
	owners map[O]*followed
}

// followed is an owner that is compared, or was repaired lately.
type followed struct {
	running bool // a goroutine of serve is at it
	changed bool // since the last comparison began
	paused  bool // it differs, and its next repair waits
	repairs *rate.Limiter
}

// NewFollower returns a follower that does not run.
func NewFollower[O comparable](source Source[O], log *slog.Logger) *Follower[O] {
	return &Follower[O]{source: source, log: log, slots: make(chan struct{}, parallel), owners: map[O]*followed{}}
}

// IsContested reports whether the owner was repaired so often that its next repair waits: another program removes the
// same again.
func (f *Follower[O]) IsContested(owner O) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.owners[owner]
	return o != nil && o.paused
}

// Run follows until ctx ends.
func (f *Follower[O]) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	for last := ""; ; {
		err := f.follow(ctx, &group)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err.Error() != last {
			last = err.Error()
			f.log.Warn("watching for changes has ended; beginning again", "error", err, "in", retryPause)
		}
		if task.Sleep(ctx, retryPause) != nil {
			return ctx.Err()
		}
	}
}

func (f *Follower[O]) follow(ctx context.Context, group *sync.WaitGroup) error {
	watchCtx, cancel := context.WithCancel(ctx)
	events, err := f.source.Watch(watchCtx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for range events { // to its end
		}
	}()
	for _, owner := range f.source.Owners() {
		f.compareSoon(ctx, group, owner)
	}
	for owner := range events {
		f.compareSoon(ctx, group, owner)
	}
	return errors.New("notifications were lost")
}

// compareSoon has the owner compared, after other events of it.
func (f *Follower[O]) compareSoon(ctx context.Context, group *sync.WaitGroup, owner O) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.owners[owner]
	if o == nil {
		maps.DeleteFunc(f.owners, func(_ O, o *followed) bool { return !o.running && o.repairs.Tokens() == burst })
		o = &followed{repairs: rate.NewLimiter(rate.Every(repairPause), burst)}
		f.owners[owner] = o
	}
	o.changed = true
	if !o.running {
		o.running = true
		group.Go(func() { f.serve(ctx, owner, o) })
	}
}

// serve compares the owner, and repairs it, until it is as it should be and nothing has changed meanwhile.
func (f *Follower[O]) serve(ctx context.Context, owner O, o *followed) {
	for wait := settle; task.Sleep(ctx, wait) == nil; {
		f.mu.Lock()
		o.changed = false
		f.mu.Unlock()
		wait = f.compare(ctx, owner, o)
		f.mu.Lock()
		if wait == 0 && o.changed {
			wait = settle
		}
		o.running = wait > 0
		o.paused = o.paused && o.running
		f.mu.Unlock()
		if wait == 0 {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o.running, o.paused = false, false // ctx has ended
}

// compare repairs the owner if it has to be and may be. It returns the time to the next comparison; 0 is with the next
// event.
func (f *Follower[O]) compare(ctx context.Context, owner O, o *followed) (next time.Duration) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	differs, err := f.source.Differs(owner)
	if !differs && err == nil {
		return 0
	}
	reserved := o.repairs.Reserve()
	if wait := reserved.Delay(); wait > 0 {
		reserved.Cancel()
		f.setPaused(o, err == nil)
		return wait
	}
	f.setPaused(o, false)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, repairTimeout)
		defer cancel()
		err = f.source.Repair(ctx, owner)
	}
	if err != nil && ctx.Err() == nil {
		f.log.Warn("repair failed; trying again", "owner", owner, "error", err)
		return retryPause
	}
	return 0
}

func (f *Follower[O]) setPaused(o *followed, paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.paused = paused
}
