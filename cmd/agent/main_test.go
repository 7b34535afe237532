package main

import (
	"context"
	"slices"
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
	if err := live(ctx, fx.New(fx.NopLogger, hook("a"), hook("b"))); err != nil {
		t.Error(err)
	}
	if want := []string{"start a", "start b", "stop b", "stop a"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
}
