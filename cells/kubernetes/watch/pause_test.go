package watch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes/watch"
)

// script is a source whose answers the test gives.
type script struct {
	list  func(metav1.ListOptions) (watch.Page[string], error)
	next  func(ctx context.Context) (watch.Event[string], error)
	lists []time.Time
	// watches are the versions that watches began from.
	watches []string
}

func (s *script) List(_ context.Context, options metav1.ListOptions) (watch.Page[string], error) {
	s.lists = append(s.lists, time.Now())
	return s.list(options)
}

func (s *script) Watch(ctx context.Context, options metav1.ListOptions) (watch.Stream[string], error) {
	s.watches = append(s.watches, options.ResourceVersion)
	return scriptStream{ctx, s}, nil
}

type scriptStream struct {
	ctx context.Context
	*script
}

func (s scriptStream) Next() (watch.Event[string], error) { return s.next(s.ctx) }
func (s scriptStream) Close()                             {}

func silentStream(ctx context.Context) (watch.Event[string], error) {
	<-ctx.Done()
	return watch.Event[string]{}, ctx.Err()
}

func emptyPage(metav1.ListOptions) (watch.Page[string], error) {
	return watch.Page[string]{Version: "7"}, nil
}

// runFor runs a loop of the source for a time of the bubble.
func runFor(source *script, d time.Duration) watch.State {
	l := watch.New("things", source, &replica{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = l.Run(ctx)
	return l.State()
}

// TestPauses: the API server refuses. Pauses grow up to a minute, 30 s in the middle.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
			return watch.Page[string]{}, errors.New("refused")
		}}
		runFor(s, time.Hour)
		if n := len(s.lists); n < 90 || n > 180 {
			t.Errorf("%d requests in an hour, want about 120", n)
		}
		for i, at := range s.lists[1:] {
			if pause := at.Sub(s.lists[i]); pause > time.Minute {
				t.Errorf("a pause of %s", pause)
			}
		}
	})
}

// TestPauseOfServer: the API server says when to come again.
func TestPauseOfServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
			return watch.Page[string]{}, apierrors.NewTooManyRequests("busy", 300)
		}}
		runFor(s, 10*time.Minute+time.Second)
		if len(s.lists) != 3 {
			t.Errorf("%d requests, want 3", len(s.lists))
		}
	})
}

// TestPauseOfYears: the API server says to come again in years.
func TestPauseOfYears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
			return watch.Page[string]{}, apierrors.NewTooManyRequests("busy", 1<<30)
		}}
		runFor(s, time.Hour)
		if len(s.lists) < 5 {
			t.Errorf("%d requests in an hour, want one in ten minutes", len(s.lists))
		}
	})
}

// TestRestoreOfEmptyKind: etcd was restored, and has an object of a kind that had none, with a version from before the
// list.
func TestRestoreOfEmptyKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restored := false
		s := &script{list: func(o metav1.ListOptions) (watch.Page[string], error) {
			if !restored {
				return emptyPage(o)
			}
			return watch.Page[string]{Version: "9", Objects: []watch.Object[string]{{Key: watch.Key{Name: "a"}, Version: "5"}}}, nil
		}}
		s.next = func(ctx context.Context) (watch.Event[string], error) {
			if !restored {
				restored = true
				return watch.Event[string]{}, io.EOF
			}
			return silentStream(ctx)
		}
		if state := runFor(s, time.Hour); state.Objects != 1 {
			t.Errorf("%d objects are known, want 1", state.Objects)
		}
	})
}

// TestPageRefused: the server refuses a page in the middle of a list. The loop waits as long as the server says, tells
// why it has no list, and goes on with the same page.
func TestPageRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		s := &script{list: func(o metav1.ListOptions) (watch.Page[string], error) {
			switch {
			case o.Continue == "":
				return watch.Page[string]{Version: "1", Continue: "x"}, nil
			case time.Since(epoch) < 50*time.Minute:
				refused++
				return watch.Page[string]{}, apierrors.NewTooManyRequests("busy", 60)
			}
			return watch.Page[string]{Version: "1"}, nil
		}, next: silentStream}
		if state := runFor(s, 40*time.Minute); state.Err == nil || state.Synced || refused > 45 {
			t.Errorf("after 40 minutes: %d requests, synced %t, error %v", refused, state.Synced, state.Err)
		}
		if state := runFor(s, 20*time.Minute); state.Err != nil || !state.Synced {
			t.Errorf("at the end: synced %t, error %v", state.Synced, state.Err)
		}
	})
}

// epoch is when each bubble of synctest begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestNotRepeated: the last object has changed while no watch was open, and the server does not tell the earlier change
// again. The loop lists within seconds.
func TestNotRepeated(t *testing.T) {
	other := watch.Event[string]{Type: "MODIFIED", Object: watch.Object[string]{Key: watch.Key{Name: "a"}, Version: "9"}}
	for name, next := range map[string]func(ctx context.Context) (watch.Event[string], error){
		"it says nothing":      silentStream,
		"it tells a later one": func(context.Context) (watch.Event[string], error) { return other, nil },
		"it tells of another object": func(context.Context) (watch.Event[string], error) {
			return watch.Event[string]{Type: "MODIFIED", Object: watch.Object[string]{Key: watch.Key{Name: "b"}, Version: "5"}}, nil
		},
		"it tells of a deletion": func(context.Context) (watch.Event[string], error) {
			return watch.Event[string]{Type: "DELETED", Object: watch.Object[string]{Key: watch.Key{Name: "a"}, Version: "5"}}, nil
		},
		"it has a bookmark": func(context.Context) (watch.Event[string], error) {
			return watch.Event[string]{Type: "BOOKMARK", Object: watch.Object[string]{Version: "7"}}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				version := "5"
				s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
					return watch.Page[string]{Version: "9", Objects: []watch.Object[string]{{Key: watch.Key{Name: "a"}, Version: version}}}, nil
				}}
				s.next = func(ctx context.Context) (watch.Event[string], error) {
					switch len(s.watches) {
					case 1:
						version = "9"
						return watch.Event[string]{}, io.EOF
					case 2:
						return next(ctx)
					}
					return silentStream(ctx)
				}
				state := runFor(s, time.Minute)
				if len(s.lists) != 3 || len(s.watches) != 3 || s.watches[1] != "4" || state.Restarts[watch.Relist] != 1 {
					t.Errorf("%d lists, watches from %v, restarts %v; want 3, one from version 4, one list anew", len(s.lists), s.watches, state.Restarts)
				}
			})
		})
	}
}

// TestWatchEndsAtOnce: a server that closes each watch is asked as rarely as a server that fails.
func TestWatchEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: emptyPage, next: func(context.Context) (watch.Event[string], error) { return watch.Event[string]{}, io.EOF }}
		runFor(s, time.Hour)
		if n := len(s.watches); n < 90 || n > 180 {
			t.Errorf("%d watches in an hour, want about 120", n)
		}
	})
}

// TestPauseSetBack restores etcd while the server is away for long: when it answers, the loop lists soon.
func TestPauseSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, away := time.Now(), 15*time.Minute
		var answered []time.Duration
		s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
			now := time.Since(began)
			switch {
			case now == 0:
				return emptyPage(metav1.ListOptions{})
			case now < away:
				return watch.Page[string]{}, errors.New("refused")
			}
			answered = append(answered, now)
			return watch.Page[string]{Version: "3"}, nil
		}}
		s.next = func(ctx context.Context) (watch.Event[string], error) {
			if len(s.watches) > 1 {
				return silentStream(ctx)
			}
			return watch.Event[string]{}, io.EOF
		}
		runFor(s, away+5*time.Minute)
		if len(answered) != 2 || answered[1]-answered[0] > 2*time.Second {
			t.Errorf("lists that the server has answered: %v, want the version, and a whole list soon", answered)
		}
	})
}

// TestSilentServer: a watch without events and bookmarks is opened again after ten minutes, and whole lists come every
// 6 to 12 hours.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: emptyPage, next: silentStream}
		state := runFor(s, 24*time.Hour)
		if n := state.Restarts[watch.Silent]; n < 138 || n > 144 {
			t.Errorf("%d restarts in a day, want one in ten minutes", n)
		}
		if n := state.Restarts[watch.Relist]; n < 1 || n > 4 {
			t.Errorf("%d whole lists in a day after the first, want one in 6 to 12 hours", n)
		}
	})
}

// TestRelist: a watch that goes well is replaced by a whole list from time to time.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{list: emptyPage, next: func(ctx context.Context) (watch.Event[string], error) {
			select {
			case <-ctx.Done():
				return watch.Event[string]{}, ctx.Err()
			case <-time.After(time.Minute):
				return watch.Event[string]{Type: "BOOKMARK", Object: watch.Object[string]{Version: "7"}}, nil
			}
		}}
		state := runFor(s, 24*time.Hour)
		if n := len(s.lists); n < 3 || n > 5 || state.Restarts[watch.Relist] != n-1 {
			t.Errorf("%d lists in a day, restarts %v; want one in 6 to 12 hours", n, state.Restarts)
		}
	})
}

// TestHurry ends a pause, unless the server has asked for it.
func TestHurry(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want int // requests after EndPause
	}{
		"no answer":           {errors.New("refused"), 1},
		"the server is busy":  {apierrors.NewTooManyRequests("busy", 3600), 0},
		"the server is going": {apierrors.NewInternalError(errors.New("shutting down")), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) { return watch.Page[string]{}, row.err }}
			l := watch.New("things", s, &replica{}, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = l.Run(ctx) }()
			time.Sleep(5*time.Minute + time.Millisecond)
			synctest.Wait()
			before := len(s.lists)
			l.EndPause()
			synctest.Wait()
			if got := len(s.lists) - before; got != row.want {
				t.Errorf("%s: %d requests, want %d", name, got, row.want)
			}
		})
	}
}

// TestAbsent: a kind is absent when the server has said so for a while, and not when it starts.
func TestAbsent(t *testing.T) {
	for name, row := range map[string]struct {
		until time.Duration // the server does not have the kind
		want  bool
	}{
		"a CRD of another version": {time.Hour, true},
		"a server that starts":     {10 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := &script{list: func(metav1.ListOptions) (watch.Page[string], error) {
				if time.Since(began) < row.until {
					return watch.Page[string]{}, apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "")
				}
				return watch.Page[string]{Version: "7"}, nil
			}, next: silentStream}
			l := watch.New("things", s, &replica{}, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			_ = l.Run(ctx)
			absent := false
			select {
			case <-l.Absent():
				absent = true
			default:
			}
			if absent != row.want || l.State().Synced == absent {
				t.Errorf("%s: absent %t, synced %t, want absent %t", name, absent, l.State().Synced, row.want)
			}
		})
	}
}
