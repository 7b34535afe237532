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
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/api/v1/openapi"
)

// story tells in what order things happened.
type story struct{ lines []string }

func (s *story) add(line string) { s.lines = append(s.lines, line) }

func TestSocketOpensAfterTheCellsThatItServesAndClosesBeforeThem(t *testing.T) {
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
}

type storyWatcher struct {
	*story
	isOpen func() string
}

func (w storyWatcher) Serving()  { w.add("serving, socket is " + w.isOpen()) }
func (w storyWatcher) Stopping() { w.add("stopping, socket is " + w.isOpen()) }

func TestStartFailsWhenAnotherAgentServes(t *testing.T) {
	first := newRig(t, Parts{})
	app := fx.New(fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), Module(first.cfg, Info{}))
	if err := app.Start(context.Background()); !errors.Is(err, ErrInUse) {
		t.Errorf("start: %v", err)
	}
	if status, _, _ := first.do(t, http.MethodGet, "/v1/status", nil); status != http.StatusOK {
		t.Errorf("the first agent answers %d", status)
	}
}

func TestServersOwnRoutesAreInTheDocument(t *testing.T) {
	err := openapi.CheckRoutes(newRig(t, Parts{}).Routes()) // it names the routes of the cells that are not here
	if err == nil || strings.Contains(err.Error(), "is served, and not in") {
		t.Error(err)
	}
}
