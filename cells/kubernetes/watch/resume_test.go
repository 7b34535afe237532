package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/watch"
	"porin.dev/porin/internal/testutil"
)

// keeper is a replica that keeps where the loop was.
type keeper struct {
	replica
	loop    *watch.Loop[string]
	mark    watch.Mark
	resumed int
}

func (k *keeper) Replace(objects map[watch.Key]watch.Object[string]) {
	k.replica.Replace(objects)
	k.keep()
}

func (k *keeper) Update(o watch.Object[string]) {
	k.replica.Update(o)
	k.keep()
}

func (k *keeper) Delete(o watch.Object[string]) {
	k.replica.Delete(o)
	k.keep()
}

func (k *keeper) keep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mark = k.loop.Mark()
	if k.loop.Resumes() {
		k.resumed++
	}
}

// resume is what the keeper knows.
func (k *keeper) resume() watch.Resume[string] {
	k.mu.Lock()
	defer k.mu.Unlock()
	objects := slices.Collect(maps.Values(k.objects))
	return watch.Resume[string]{
		Mark:  k.mark,
		Check: func(context.Context) error { return nil },
		Pages: func(page func([]watch.Object[string])) error {
			for _, o := range objects {
				page([]watch.Object[string]{o})
			}
			return nil
		},
	}
}

// run follows pods, from what another loop knew if from is not nil.
func (k *keeper) run(r *rig, from *watch.Resume[string]) (stop func()) {
	k.loop = watch.New("pods", r.podSource(), k, slog.New(slog.DiscardHandler))
	if from != nil {
		k.loop.ResumeFrom(*from)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.loop.Run(ctx) }()
	stop = func() { cancel(); <-done }
	r.Cleanup(stop)
	return stop
}

// wholeLists counts the lists that are not of one object.
func wholeLists(requests []kubernetestest.Request) (n int) {
	for _, q := range requests {
		if q.Verb == "list" && !strings.Contains(q.Selector, "metadata.name=") {
			n++
		}
	}
	return n
}

// TestResume: a second loop gets what the first one knew and what has changed since, without a list.
func TestResume(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	r.Put(pod("b", "n1", "web"))
	var first, second keeper
	stop := first.run(r, nil)
	first.becomes(t, "map[shop/a:web shop/b:web]")
	r.Put(pod("c", "n1", "db"))
	first.becomes(t, "map[shop/a:web shop/b:web shop/c:db]")
	stop()
	r.Delete("pods", "shop", "a")
	r.Put(pod("b", "n1", "api"))
	r.Put(pod("d", "n1", "db"))
	r.Requests()
	from := first.resume()
	stop = second.run(r, &from)
	second.becomes(t, "map[shop/b:api shop/c:db shop/d:db]")
	<-second.loop.Synced()
	stop()
	if n := wholeLists(r.Requests()); n != 0 || second.replaced != 1 || second.resumed != 1 {
		t.Errorf("%d lists, %d snapshots, %d of them of the first loop, want none, one and one", n, second.replaced, second.resumed)
	}
	if state := second.loop.State(); state.Objects != 3 {
		t.Errorf("%d objects are known, want 3", state.Objects)
	}
}

// TestResumeChanged: a second loop goes on without a list if the object that changed last has changed again.
func TestResumeChanged(t *testing.T) {
	for name, change := range map[string]func(*rig){
		"changed": func(r *rig) { r.Put(pod("b", "n1", "api")) },
		"deleted": func(r *rig) { r.Delete("pods", "shop", "b") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Put(pod("gone", "n1", "web"))
			r.Put(pod("a", "n1", "web"))
			r.Put(pod("b", "n1", "web"))
			r.Delete("pods", "shop", "gone") // later than the last change of an object of the list
			var first, second keeper
			stop := first.run(r, nil)
			first.becomes(t, "map[shop/a:web shop/b:web]")
			stop()
			change(r)
			r.Put(pod("a", "n1", "db"))
			r.Requests()
			from := first.resume()
			stop = second.run(r, &from)
			second.becomes(t, map[string]string{"changed": "map[shop/a:db shop/b:api]", "deleted": "map[shop/a:db]"}[name])
			stop()
			if n := wholeLists(r.Requests()); n != 0 || second.replaced != 1 {
				t.Errorf("%d lists and %d snapshots, want none and one", n, second.replaced)
			}
		})
	}
}

// TestResumeServerAway: the loop waits until the server answers. Until then the handler gets nothing.
func TestResumeServerAway(t *testing.T) {
	r := newRig(t)
	r.Put(pod("a", "n1", "web"))
	var first, second keeper
	stop := first.run(r, nil)
	first.becomes(t, "map[shop/a:web]")
	stop()
	from := first.resume()
	away := make(chan struct{})
	from.Check = func(context.Context) error {
		select {
		case <-away:
			return nil
		default:
			return errors.New("the server does not say which one it is")
		}
	}
	second.run(r, &from)
	count(t, second.loop, watch.Failed, 1)
	if second.text() != "map[]" {
		t.Errorf("the handler knows %s before the server answers", second.text())
	}
	close(away)
	second.becomes(t, "map[shop/a:web]")
	if second.resumed != 1 {
		t.Error("the loop has not gone on from the first one")
	}
}

// TestResumeImpossible: the second loop lists, and gets what is there.
func TestResumeImpossible(t *testing.T) {
	for name, row := range map[string]struct {
		meanwhile func(*rig)
		change    func(*watch.Resume[string])
		reason    watch.Reason
	}{
		"another cluster": {change: func(f *watch.Resume[string]) {
			f.Check = func(context.Context) error { return fmt.Errorf("its ID is x: %w", watch.ErrOther) }
		}, reason: watch.Relist},
		"a list is due":            {change: func(f *watch.Resume[string]) { f.Mark.Relist = time.Now() }, reason: watch.Relist},
		"no time of the next list": {change: func(f *watch.Resume[string]) { f.Mark.Relist = time.Time{} }, reason: watch.Relist},
		"the objects are gone": {change: func(f *watch.Resume[string]) {
			f.Pages = func(page func([]watch.Object[string])) error {
				page([]watch.Object[string]{{Key: watch.Key{Namespace: "shop", Name: "stale"}, Value: "stale"}})
				return errors.New("the file has changed")
			}
		}, reason: watch.Relist},
		"the server has forgotten the last change": {meanwhile: func(r *rig) {
			r.Put(pod("b", "n1", "api"))
			r.Put(pod("b", "n1", "db"))
			r.Compact()
		}, reason: watch.Gone},
		"the server was set back": {change: func(f *watch.Resume[string]) { f.Mark.Version += "000" }, reason: watch.SetBack},
		"no number":               {change: func(f *watch.Resume[string]) { f.Mark.Version = "x" }, reason: watch.SetBack},
		"the server has forgotten the version": {meanwhile: func(r *rig) {
			r.Put(pod("c", "n1", "db"))
			r.Delete("pods", "shop", "c")
			r.Compact()
		}, reason: watch.Gone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Put(pod("a", "n1", "web"))
			r.Put(pod("b", "n1", "db"))
			var first, second keeper
			stop := first.run(r, nil)
			first.becomes(t, "map[shop/a:web shop/b:db]")
			stop()
			if row.meanwhile != nil {
				row.meanwhile(r)
			}
			from := first.resume()
			if row.change != nil {
				row.change(&from)
			}
			r.Requests()
			second.run(r, &from)
			second.becomes(t, "map[shop/a:web shop/b:db]")
			count(t, second.loop, row.reason, 1)
			testutil.Eventually(t, func() error {
				second.mu.Lock()
				defer second.mu.Unlock()
				if second.mark.Version == "" || second.replaced == second.resumed {
					return errors.New("no list has ended")
				}
				return nil
			})
			second.becomes(t, "map[shop/a:web shop/b:db]")
		})
	}
}
