package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/api/v1/openapi/openapitest"
	"porin.dev/porin/cells/metrics"
)

// story records in what order things happened.
type story struct{ lines []string }

func (s *story) add(line string) { s.lines = append(s.lines, line) }

func TestModuleStartOrder(t *testing.T) {
	cfg := Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	told := new(story)
	isOpen := func() string {
		if _, err := os.Lstat(cfg.Socket); errors.Is(err, fs.ErrNotExist) {
			return "closed"
		}
		return "open"
	}
	newCell := func(lc fx.Lifecycle) Routes {
		lc.Append(fx.StartStopHook(
			func() { told.add("cell starts, socket is " + isOpen()) },
			func() { told.add("cell stops, socket is " + isOpen()) },
		))
		return routesFunc(func(chi.Router) {})
	}
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		LockSocket(),
		Module(cfg, Info{Version: "v0", Node: "here"}),
		Provide(newCell),
		Watch(func() Watcher { return storyWatcher{told, isOpen} }),
	)
	app.RequireStart()
	app.RequireStop()
	want := []string{
		"cell starts, socket is closed", "serving, socket is open",
		"stopping, socket is open", "cell stops, socket is closed",
	}
	if !slices.Equal(told.lines, want) {
		t.Errorf("got %q, want %q", told.lines, want)
	}
	checkLeft(t, cfg.Socket)
}

type storyWatcher struct {
	*story
	isOpen func() string
}

func (w storyWatcher) Serving()  { w.add("serving, socket is " + w.isOpen()) }
func (w storyWatcher) Stopping() { w.add("stopping, socket is " + w.isOpen()) }

func TestLockSocketSecondAgent(t *testing.T) {
	first := newRig(t, Parts{})
	newCell := func(lc fx.Lifecycle) Routes {
		lc.Append(fx.StartHook(func() { t.Error("a cell started") }))
		return routesFunc(func(chi.Router) {})
	}
	app := fx.New(fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)),
		LockSocket(), Provide(newCell), Module(first.cfg, Info{}))
	if err := app.Start(context.Background()); !errors.Is(err, ErrInUse) {
		t.Errorf("start: %v", err)
	}
	if status, _, _ := first.do(t, http.MethodGet, "/v1/status", nil); status != http.StatusOK {
		t.Errorf("the first agent answers %d", status)
	}
}

func TestRoutesInOpenAPI(t *testing.T) {
	err := openapitest.CheckRoutes(newRig(t, Parts{}).Routes()) // it names the routes of the cells that are not here
	if err == nil || strings.Contains(err.Error(), "is served, and not in") {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	cfg := Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	var exporter *metrics.Exporter
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		metrics.Module(metrics.DefaultConfig()), Module(cfg, Info{}),
		fx.Populate(&exporter),
	)
	app.RequireStart()
	answer, err := clientOf(cfg.Socket).Get("http://porin/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	app.RequireStop() // a request is measured after its answer
	if n, err := testutil.GatherAndCount(exporter.Gatherer(), "porin_api_request_duration_seconds"); n != 1 || err != nil {
		t.Errorf("%d series, want one (%v)", n, err)
	}
}
