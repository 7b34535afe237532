package cell

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/fx"
)

// TestRunStopDuringStart has the signal come while the cells start: they start, stop in order, and that is a success.
func TestRunStopDuringStart(t *testing.T) {
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
	if err := Run(ctx, fx.New(fx.NopLogger, hook("a"), hook("b")), func(error) {}); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
}

// TestRunReason: the caller is told once why the cells are stopped.
func TestRunReason(t *testing.T) {
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
		"signal": {signalled, fx.Options(), "terminated signal received", false},
		"cell":   {t.Context(), giveUp, ErrGaveUp.Error(), true},
	} {
		var reasons []string
		err := Run(c.ctx, fx.New(fx.NopLogger, c.cell), func(reason error) { reasons = append(reasons, reason.Error()) })
		if (err != nil) != c.fails || !slices.Equal(reasons, []string{c.want}) {
			t.Errorf("%s: error %v, reasons %q, want %q", name, err, reasons, c.want)
		}
	}
}
