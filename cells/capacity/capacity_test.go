package capacity_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a source whose resources a test changes.
type shelf struct {
	mu  sync.Mutex // guards all
	all []capacity.Resource
}

func (s *shelf) Resources() []capacity.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]capacity.Resource{}, s.all...)
}

func (s *shelf) set(all ...capacity.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

func TestReportSaysWhatIsNotAvailableAndWhy(t *testing.T) {
	one, two := new(shelf), new(shelf)
	one.set(
		capacity.Resource{Name: "plates", Used: 10, Capacity: 10, Reserve: 1},
		capacity.Resource{Name: "cups", Used: 9, Capacity: 10, Reserve: 1},
		capacity.Resource{Name: "bowls", Used: 95, Capacity: 100, Reserve: 8},
		capacity.Resource{Name: "forks", Used: 12, Capacity: 10, Reserve: 1},
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
		{Name: "knives", Used: 1, Capacity: 10, Reason: "they are blunt"},
		{Name: "plates", Used: 10, Capacity: 10, Reason: "0 of 10 left"},
		{Name: "water", Available: true},
	}
	if diff := cmp.Diff(want, status.Resources); diff != "" {
		t.Error(diff)
	}
}

func TestWithoutSourcesTheListIsEmptyAndNotNull(t *testing.T) {
	if got := capacity.New().Resources(); got == nil || len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestForecast tells the use at each sample, ten seconds apart, and when it runs out after the last.
func TestForecast(t *testing.T) {
	steps := func(n int, use func(i int) int64) (list []int64) {
		for i := range n {
			list = append(list, use(i))
		}
		return list
	}
	tests := []struct {
		name string
		used []int64
		want time.Duration
	}{
		{"two samples are no trend", []int64{10, 20}, 0},
		{"one a second, 170 left", []int64{10, 20, 30}, 170 * time.Second},
		{"it does not change", []int64{10, 10, 10, 10}, 0},
		{"it falls", []int64{40, 30, 20, 10}, 0},
		{"a step of three samples", []int64{0, 0, 100}, 0},
		{"a step of four", []int64{0, 0, 100, 100}, 0},
		{"a step in the middle of many", steps(60, func(i int) int64 { return int64(i/30) * 100 }), 0},
		{"up and down", steps(60, func(i int) int64 { return int64(i % 6 * 20) }), 0},
		{"steady with noise", steps(60, func(i int) int64 { return int64(2*i + i%2) }), 405 * time.Second},
		{"so slow that it says nothing", steps(60, func(i int) int64 { return 100 + int64(i/59) }), 0},
		{"used up", []int64{180, 190, 200}, 0},
		{"what grew before the window counts no more", steps(130, func(i int) int64 { return min(int64(i), 60) }), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := new(shelf)
				c := capacity.New(source)
				for i, used := range tt.used {
					source.set(capacity.Resource{Name: "plates", Used: used, Capacity: 200, Reserve: 1})
					if i == 0 {
						c.Start()
					} else {
						time.Sleep(10 * time.Second)
					}
					synctest.Wait()
				}
				c.Stop()
				got := c.Resources()[0].ExhaustedIn
				if got < tt.want-5*time.Second || got > tt.want+5*time.Second {
					t.Errorf("exhausted in %s, want %s", got, tt.want)
				}
			})
		})
	}
}

type checkersIn struct {
	fx.In

	All []doctor.Checker `group:"doctor.checkers"`
}

func TestModuleReportsAndCounts(t *testing.T) {
	source, cfg := new(shelf), server.Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	source.set(capacity.Resource{Name: "plates", Used: 10, Capacity: 10, Reserve: 1}, capacity.Resource{Name: "water"})
	var (
		c        *capacity.Capacity
		exporter *metrics.Exporter
		checkers checkersIn
	)
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		capacity.Module(),
		capacity.Provide(func() *shelf { return source }),
		server.Module(cfg, server.Info{}),
		metrics.Module(metrics.DefaultConfig()),
		fx.Populate(&c, &exporter), fx.Invoke(func(in checkersIn) { checkers = in }),
	)
	app.RequireStart()
	app.RequireStop() // it waits for the first sample
	if got := c.Resources(); len(got) != 2 {
		t.Errorf("resources %v", got)
	}
	notes, err := checkers.All[0].Examine(t.Context(), "")
	if err != nil || len(notes) != 1 || notes[0].Subject != "plates" || notes[0].Detail != "0 of 10 left" {
		t.Errorf("notes %+v, error %v, want one of the plates", notes, err)
	}
	want := `
# HELP porin_resource_available 1 while the next ADD would find what it needs, else 0.
# TYPE porin_resource_available gauge
porin_resource_available{resource="plates"} 0
porin_resource_available{resource="water"} 1
# HELP porin_resource_used How much is in use of what an ADD needs.
# TYPE porin_resource_used gauge
porin_resource_used{resource="plates"} 10
porin_resource_used{resource="water"} 0
`
	names := []string{"porin_resource_available", "porin_resource_used", "porin_resource_exhausted_seconds"}
	if err := testutil.GatherAndCompare(exporter.Gatherer(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
