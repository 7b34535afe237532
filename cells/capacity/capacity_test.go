package capacity_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/restored"
	porintest "porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource is a source whose resources a test changes.
type fakeSource struct {
	mu  sync.Mutex // guards all
	all []capacity.Resource
}

func (s *fakeSource) Resources() []capacity.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]capacity.Resource{}, s.all...)
}

func (s *fakeSource) set(all ...capacity.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

func TestReport(t *testing.T) {
	one, two := new(fakeSource), new(fakeSource)
	one.set(
		capacity.Resource{Name: "plates", Used: 10, Capacity: 10, Reserve: 1},
		capacity.Resource{Name: "cups", Used: 9, Capacity: 10, Reserve: 1},
		capacity.Resource{Name: "bowls", Used: 95, Capacity: 100, Reserve: 8},
		capacity.Resource{Name: "forks", Used: 12, Capacity: 10, Reserve: 1},
		capacity.Resource{Name: "glasses", Used: 7, Quarantined: 3, Capacity: 10, Reserve: 1},
	)
	two.set(
		capacity.Resource{Name: "water"},
		capacity.Resource{Name: "gas", Err: errors.New("the pipe is cut")},
		capacity.Resource{Name: "knives", Used: 1, Capacity: 10, Reserve: 1, Err: errors.New("they are blunt")},
	)
	var status v1.Status
	capacity.New(one, two).Report(&status)
	want := []v1.Resource{
		{Name: "bowls", Used: 95, Capacity: 100, Reason: "5 of 100 left, and 8 are held back"},
		{Name: "cups", Used: 9, Capacity: 10, Available: true},
		{Name: "forks", Used: 12, Capacity: 10, Reason: "0 of 10 left"},
		{Name: "gas", Reason: "the pipe is cut"},
		{Name: "glasses", Used: 7, Quarantined: 3, Capacity: 10, Reason: "0 of 10 left"},
		{Name: "knives", Used: 1, Capacity: 10, Reason: "they are blunt"},
		{Name: "plates", Used: 10, Capacity: 10, Reason: "0 of 10 left"},
		{Name: "water", Available: true},
	}
	if diff := cmp.Diff(want, status.Resources); diff != "" {
		t.Error(diff)
	}
}

// TestRefilledResource: one source gives the numbers, and another says that more is available.
func TestRefilledResource(t *testing.T) {
	numbers, more := new(fakeSource), new(fakeSource)
	numbers.set(capacity.Resource{Name: "cups", Used: 1, Capacity: 1, Reserve: 1}, capacity.Resource{Name: "plates", Used: 4, Capacity: 4, Reserve: 1})
	more.set(capacity.Resource{Name: "cups", Refilled: true}, capacity.Resource{Name: "plates", Refilled: true, Err: errors.New("the shop is closed")})
	want := []v1.Resource{
		{Name: "cups", Used: 1, Capacity: 1, Available: true},
		{Name: "plates", Used: 4, Capacity: 4, Reason: "the shop is closed"},
	}
	for _, sources := range [][]capacity.Source{{numbers, more}, {more, numbers}} {
		if diff := cmp.Diff(want, capacity.New(sources...).Resources()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestReportWithoutSources(t *testing.T) {
	if got := capacity.New().Resources(); got == nil || len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

type checkersIn struct {
	fx.In

	All []doctor.Checker `group:"doctor.checkers"`
}

func TestModule(t *testing.T) {
	source, cfg := new(fakeSource), server.Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	source.set(capacity.Resource{Name: "plates", Used: 8, Quarantined: 2, Capacity: 10, Reserve: 1}, capacity.Resource{Name: "water"}, capacity.Resource{Name: "blocks", Used: 7, Capacity: 8, Reserve: 1, Refilled: true},
		capacity.Resource{Name: "key", Err: errors.New("it was copied"), Finding: "key-copied"})
	var (
		c        *capacity.Capacity
		exporter *metrics.Exporter
		checkers checkersIn
	)
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		capacity.Module(),
		capacity.Provide(func() *fakeSource { return source }),
		supervisor.Module(supervisor.DefaultConfig()), fx.Supply(restored.Opened()),
		server.Module(cfg, server.Info{}),
		metrics.Module(metrics.DefaultConfig()),
		fx.Populate(&c, &exporter), fx.Invoke(func(in checkersIn) { checkers = in }),
	)
	app.RequireStart()
	porintest.Eventually(t, func() error { // the first sample
		n, err := testutil.GatherAndCount(exporter.Gatherer(), "porin_resource_available")
		if err == nil && n != 4 {
			err = fmt.Errorf("%d resources are counted, want 4", n)
		}
		return err
	})
	app.RequireStop()
	if got := c.Resources(); len(got) != 4 {
		t.Errorf("resources %v", got)
	}
	notes, err := checkers.All[0].Examine(t.Context(), "")
	if err != nil || len(notes) != 1 || notes[0].Subject != "plates" || notes[0].Detail != "0 of 10 left" {
		t.Errorf("notes %+v, error %v, want one of the plates", notes, err)
	}
	want := `
# HELP porin_resource_available 1 while the next ADD would find what it needs, else 0.
# TYPE porin_resource_available gauge
porin_resource_available{resource="blocks"} 1
porin_resource_available{resource="key"} 0
porin_resource_available{resource="plates"} 0
porin_resource_available{resource="water"} 1
# HELP porin_resource_capacity How much there is of what an ADD needs; missing where it is not counted, or the node gets more by itself.
# TYPE porin_resource_capacity gauge
porin_resource_capacity{resource="plates"} 10
# HELP porin_resource_used How much is in use, or in quarantine, of what an ADD needs.
# TYPE porin_resource_used gauge
porin_resource_used{resource="blocks"} 7
porin_resource_used{resource="key"} 0
porin_resource_used{resource="plates"} 10
porin_resource_used{resource="water"} 0
`
	names := []string{"porin_resource_available", "porin_resource_capacity", "porin_resource_used"}
	if err := testutil.GatherAndCompare(exporter.Gatherer(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
