package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/task"
)

const (
	// deleteGroup is the link group ("por" in ASCII) of what is to be deleted.
	deleteGroup = 0x706f72
	// workerCount bounds the kernel calls that delete links at the same time. Each blocks for 12 to 30 ms, most of it
	// after its links are gone. Measured: with 8 a DEL that follows 3 ms after another finds one idle (p50 0.6 ms;
	// 4: 0.9 ms with a p90 of 10 ms; 1: 17 ms), and 32 at once give 1,800 links a second (1: 1,500; 32: 700).
	workerCount = 8
	// recheckInterval is how long a deletion trusts in being notified.
	recheckInterval = 100 * time.Millisecond
)

// deleter deletes links and does not wait for the kernel to forget them.
//
//	Remove: down, into the delete group -> wakeup -> an idle worker: delete the group      (blocks 12-30 ms)
//	   `------ returns at the notification -------------'                                (after 0.5-2 ms)
//
// One worker's call takes the whole group as it is when the call begins. So links that come while every worker is in
// the kernel wait for the next call together, and a lone one never waits for the call of another.
type deleter struct {
	log     *slog.Logger
	conn    *rtnl.Conn // for what does not block
	watch   *rtnl.LinkWatch
	workers []*rtnl.Conn
	wakeup  chan struct{} // of capacity 1: a token is taken after what was just put into the group
	stop    chan struct{}
	waiters waiters

	working, listening sync.WaitGroup
}

// openDeleter opens its sockets in the namespace of the calling thread.
func openDeleter(log *slog.Logger) (_ *deleter, err error) {
	d := &deleter{
		log: log, wakeup: make(chan struct{}, 1), stop: make(chan struct{}),
		waiters: waiters{links: map[chan bool]int{}},
	}
	defer func() {
		if err != nil {
			d.closeSockets()
		}
	}()
	if d.conn, err = rtnl.Dial(); err != nil {
		return nil, err
	}
	if d.watch, err = rtnl.WatchLinks(); err != nil {
		return nil, err
	}
	for range workerCount {
		worker, err := rtnl.Dial()
		if err != nil {
			return nil, err
		}
		d.workers = append(d.workers, worker)
	}
	d.listening.Go(d.listen)
	for _, worker := range d.workers {
		d.working.Go(func() { d.work(worker) })
	}
	return d, nil
}

// close waits for the kernel calls in progress. Nobody may call remove any more.
func (d *deleter) close() error {
	close(d.stop)
	d.working.Wait()
	err := d.closeSockets()
	d.listening.Wait()
	return err
}

func (d *deleter) closeSockets() (err error) {
	if d.watch != nil {
		err = d.watch.Close()
	}
	if d.conn != nil {
		err = errors.Join(err, d.conn.Close())
	}
	for _, worker := range d.workers {
		err = errors.Join(err, worker.Close())
	}
	return err
}

// remove deletes the link and returns when it is gone, or when ctx ends: it will go then, too.
func (d *deleter) remove(ctx context.Context, index int) error {
	notified := d.waiters.expect(index)
	defer d.waiters.remove(notified)
	err := d.conn.Do(rtnl.LinkDownAndGroup(index, deleteGroup))
	if err != nil {
		return ignoreNotFound(err)
	}
	timer := time.NewTicker(recheckInterval)
	defer timer.Stop()
	for {
		d.wake()
		select {
		case <-ctx.Done():
			return fmt.Errorf("delete link %d: %w", index, ctx.Err())
		case gone := <-notified:
			if gone {
				return nil
			}
		case <-timer.C:
		}
		if err := d.conn.Do(rtnl.LinkDownAndGroup(index, deleteGroup)); err != nil {
			return ignoreNotFound(err)
		}
	}
}

// ignoreNotFound takes "no such link" for a success.
func ignoreNotFound(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// wake gives the workers a token, unless an unused token is there.
func (d *deleter) wake() {
	task.Wake(d.wakeup)
}

// work deletes the group whenever there is a token, and a last time at the end if one is left.
func (d *deleter) work(conn *rtnl.Conn) {
	for {
		select {
		case <-d.wakeup:
			d.deleteMarked(conn)
		case <-d.stop:
			select {
			case <-d.wakeup:
				d.deleteMarked(conn)
			default:
			}
			return
		}
	}
}

// deleteMarked deletes the group, or link by link the awaited links when that cannot be: another program may have put
// other links into it.
func (d *deleter) deleteMarked(conn *rtnl.Conn) {
	err := ignoreNotFound(conn.Do(rtnl.DelLinkGroup(deleteGroup)))
	if err == nil {
		return
	}
	d.log.Warn("links cannot be deleted as a group, deleting them one by one", "group", deleteGroup, "error", err)
	for _, index := range d.waiters.indexes() {
		if err := ignoreNotFound(conn.Do(rtnl.DelLink(index))); err != nil {
			d.log.Warn("link cannot be deleted, trying again until the caller gives up", "ifindex", index, "error", err)
		}
	}
}

// listen notifies the waiters of links that are gone.
func (d *deleter) listen() {
	for {
		gone, err := d.watch.Next()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, rtnl.ErrOverrun):
			d.waiters.notify(func(int) bool { return true }, false)
		case err != nil:
			d.log.Warn("not notified of links any more, looking for them instead", "every", recheckInterval, "error", err)
			return
		default:
			d.waiters.notify(func(index int) bool { return index == gone }, true)
		}
	}
}

// waiters are the callers that wait for a link to go.
type waiters struct {
	mu    sync.Mutex        // guards the field below
	links map[chan bool]int // by the channel to notify: true when the link is gone, false when the caller must check for itself
}

// notify wakes the waiters for the chosen links.
func (w *waiters) notify(chosen func(index int) bool, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for notified, index := range w.links {
		if chosen(index) {
			select {
			case notified <- gone:
			default: // it has something to read
			}
		}
	}
}

// expect begins to wait. It comes before the deletion, so that no notification is missed, and forget after it.
func (w *waiters) expect(index int) chan bool {
	notified := make(chan bool, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[notified] = index
	return notified
}

func (w *waiters) remove(notified chan bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, notified)
}

func (w *waiters) indexes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.links))
}
