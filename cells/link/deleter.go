package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

const (
	// doomedGroup is the link group ("por" in ASCII) of what is to be deleted.
	doomedGroup = 0x706f72
	// deleters bounds the kernel calls that delete links at the same time. Each blocks for 12 to 30 ms, most of it
	// after its links are gone. Measured: with 8 a DEL that follows 3 ms after another finds one idle (p50 0.6 ms;
	// 4: 0.9 ms with a p90 of 10 ms; 1: 17 ms), and 32 at once give 1,800 links a second (1: 1,500; 32: 700).
	deleters = 8
	// recheck is how long a deletion trusts in being notified.
	recheck = 100 * time.Millisecond
)

// deleter deletes links and does not wait for the kernel to forget them.
//
//	Remove: down, into the doomed group -> kick -> an idle worker: delete the group      (blocks 12-30 ms)
//	   `------ returns at the notification -------------'                                (after 0.5-2 ms)
//
// One worker's call takes all that is doomed when it begins. So links that come while every worker is in the kernel
// wait for the next call together, and a lone one never waits for the call of another.
type deleter struct {
	log     *slog.Logger
	conn    *rtnl.Conn // for what does not block
	watch   *rtnl.LinkWatch
	workers []*rtnl.Conn
	kick    chan struct{} // of capacity 1: a token that is there will be taken after what was just doomed
	stop    chan struct{}
	waiting waiting

	working, listening sync.WaitGroup
}

// openDeleter opens its sockets in the namespace of the calling thread.
func openDeleter(log *slog.Logger) (_ *deleter, err error) {
	d := &deleter{
		log: log, kick: make(chan struct{}, 1), stop: make(chan struct{}),
		waiting: waiting{links: map[chan bool]int{}},
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
	for range deleters {
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
	told := d.waiting.expect(index)
	defer d.waiting.forget(told)
	err := d.conn.Do(rtnl.LinkDownAndGroup(index, doomedGroup))
	if err != nil {
		return absent(err)
	}
	timer := time.NewTicker(recheck)
	defer timer.Stop()
	for {
		d.wake()
		select {
		case <-ctx.Done():
			return fmt.Errorf("delete link %d: %w", index, ctx.Err())
		case gone := <-told:
			if gone {
				return nil
			}
		case <-timer.C:
		}
		if err := d.conn.Do(rtnl.LinkDownAndGroup(index, doomedGroup)); err != nil {
			return absent(err)
		}
	}
}

// absent takes "no such link" for a success.
func absent(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// wake gives the workers a token, unless one is there that nobody has taken yet.
func (d *deleter) wake() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// work deletes the group whenever there is a token, and a last time at the end if one is left.
func (d *deleter) work(conn *rtnl.Conn) {
	for {
		select {
		case <-d.kick:
			d.deleteDoomed(conn)
		case <-d.stop:
			select {
			case <-d.kick:
				d.deleteDoomed(conn)
			default:
			}
			return
		}
	}
}

// deleteDoomed deletes the group, or link by link what is waited for when that cannot be: somebody may have put into
// it what is not to be deleted.
func (d *deleter) deleteDoomed(conn *rtnl.Conn) {
	err := absent(conn.Do(rtnl.DelLinkGroup(doomedGroup)))
	if err == nil {
		return
	}
	d.log.Warn("links cannot be deleted as a group, deleting them one by one", "group", doomedGroup, "error", err)
	for _, index := range d.waiting.indexes() {
		if err := absent(conn.Do(rtnl.DelLink(index))); err != nil {
			d.log.Warn("link cannot be deleted, trying again until the caller gives up", "ifindex", index, "error", err)
		}
	}
}

// listen tells waiting callers of the links that are gone.
func (d *deleter) listen() {
	for {
		gone, err := d.watch.Next()
		switch {
		case errors.Is(err, os.ErrClosed):
			return
		case errors.Is(err, rtnl.ErrOverrun):
			d.waiting.tell(func(int) bool { return true }, false)
		case err != nil:
			d.log.Warn("not notified of links any more, looking for them instead", "every", recheck, "error", err)
			return
		default:
			d.waiting.tell(func(index int) bool { return index == gone }, true)
		}
	}
}
