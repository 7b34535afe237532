package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// killedLedger ends the start after some writes.
type killedLedger struct {
	ledger.Ledger
	left   *int
	cancel context.CancelFunc
}

func (k killedLedger) Put(rec ledger.Record) error {
	return k.write(func() error { return k.Ledger.Put(rec) })
}

func (k killedLedger) PutAll(recs []ledger.Record) error {
	return k.write(func() error { return k.Ledger.PutAll(recs) })
}

func (k killedLedger) write(write func() error) error {
	if *k.left == 0 {
		k.cancel() // the process is gone: nothing after this is written
		return errors.New("killed")
	}
	*k.left--
	return write()
}

// killStart starts a manager and ends it after n writes.
func killStart(t *testing.T, dir string, n int, steps ...endpoint.Step) {
	t.Helper()
	m := unstarted(dir, &probe{})
	m.steps = steps
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := m.open
	m.open = func(path string) (ledger.Ledger, error) {
		l, err := open(path)
		return killedLedger{l, &n, cancel}, err
	}
	_ = m.Start(ctx) // fails, unless everything was written
	if err := m.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func linksFrom(first, n int) (links []endpoint.Endpoint) {
	for i := first; i < first+n; i++ {
		a := endpoint.Attachment{ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"}
		links = append(links, endpoint.Endpoint{ID: uint16(i), Spec: endpoint.Spec{Attachment: a}, Host: endpoint.Interface{Name: a.HostEnd(), Index: i + 10}})
	}
	return links
}

// create leaves a ledger of n endpoints.
func create(t *testing.T, dir string, n int) {
	t.Helper()
	m := withSteps(t, dir, &probe{})
	for i := range n {
		if _, err := m.Create(t.Context(), specOf(fmt.Sprintf("w%d:eth0", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestKilledWhileHolding: a start that is killed while it writes down what it holds has written all of it, or the next
// one decides on all of it again. Else the rest would be few enough to be removed, and they are links of running pods.
func TestKilledWhileHolding(t *testing.T) {
	for _, row := range []struct{ whole, links int }{{0, 3}, {0, 6}, {50, 60}} {
		for writes := range 4 {
			t.Run(fmt.Sprintf("%d endpoints, %d links, %d writes", row.whole, row.links, writes), func(t *testing.T) {
				dir := t.TempDir()
				if row.whole > 0 {
					create(t, dir, row.whole)
				}
				links := linksFrom(1000, row.links)
				killStart(t, dir, writes, &pruning{&finding{probe: &probe{}, links: links}})
				m := withSteps(t, dir, &pruning{&finding{probe: &probe{}, links: links}})
				if held, removed := len(m.Held()), m.Restored().Removed; held != row.links || len(removed) > 0 {
					t.Errorf("the start after the kill holds %d, and removes %v", held, removed)
				}
			})
		}
	}
}

// losing is a step whose Survey says that all links are gone.
type losing struct{ *finding }

func (l *losing) Survey(_ context.Context, eps []endpoint.Endpoint) (map[endpoint.Attachment]error, error) {
	lost := map[endpoint.Attachment]error{}
	for _, ep := range eps {
		lost[ep.Spec.Attachment] = errors.New("gone")
	}
	return lost, nil
}

func TestKilledWhileHoldingLost(t *testing.T) {
	for writes := range 4 {
		dir := t.TempDir()
		create(t, dir, 6)
		killStart(t, dir, writes, &losing{&finding{probe: &probe{}}})
		m := withSteps(t, dir, &losing{&finding{probe: &probe{}}})
		if held := len(m.Held()); held != 6 {
			t.Errorf("killed after %d writes: held %d of 6, undone %d", writes, held, m.Restored().Undone)
		}
	}
}

// TestStopWhileAsked: health and resources may be asked while the manager stops.
func TestStopWhileAsked(t *testing.T) {
	for range 20 {
		m := withSteps(t, t.TempDir(), &probe{})
		var group sync.WaitGroup
		end := make(chan struct{})
		for range 4 {
			group.Go(func() {
				for {
					select {
					case <-end:
						return
					default:
						newHealth(m).Condition()
						newResources(m).Resources()
					}
				}
			})
		}
		err := m.Stop(t.Context())
		close(end)
		group.Wait()
		if err != nil {
			t.Fatal(err)
		}
	}
}
