package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.uber.org/fx"
)

// TestStopDuringStart has the signal come while the cells start: they start, stop in order, and that is a success.
func TestStopDuringStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var did []string
	hook := func(name string) fx.Option {
		return fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.Hook{
				OnStart: func(ctx context.Context) error { cancel(); did = append(did, "start "+name); return ctx.Err() },
				OnStop:  func(ctx context.Context) error { did = append(did, "stop "+name); return ctx.Err() },
			})
		})
	}
	if err := live(ctx, fx.New(fx.NopLogger, hook("a"), hook("b")), slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
}

// TestStopReasonLogged: the log ends with one line that says why the agent stops.
func TestStopReasonLogged(t *testing.T) {
	signalled, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("terminated signal received"))
	giveUp := fx.Invoke(func(lc fx.Lifecycle, sd fx.Shutdowner) {
		lc.Append(fx.StartHook(func() error { return sd.Shutdown(fx.ExitCode(3)) }))
	})
	for name, c := range map[string]struct {
		ctx   context.Context
		cell  fx.Option
		want  string
		fails bool
	}{
		"signal": {signalled, fx.Options(), `reason="terminated signal received"`, false},
		"cell":   {t.Context(), giveUp, `reason="a cell gave up; the log says which and why"`, true},
	} {
		var log strings.Builder
		err := live(c.ctx, fx.New(fx.NopLogger, c.cell), slog.New(slog.NewTextHandler(&log, nil)))
		if (err != nil) != c.fails || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), `msg="agent stops" `+c.want) {
			t.Errorf("%s: error %v, log %q, want one line with %s", name, err, log.String(), c.want)
		}
	}
}
