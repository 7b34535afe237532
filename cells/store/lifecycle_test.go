package store

import (
	"errors"
	"testing"
	"testing/synctest"
)

func TestLifecycleEndWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lifecycle
		l.begin()
		ctx, leave, err := l.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended := false
		go func() {
			l.end()
			ended = true
		}()
		synctest.Wait()
		if ctx.Err() == nil || ended {
			t.Errorf("the call's context has error %v, the lifecycle has ended: %t", ctx.Err(), ended)
		}
		if _, _, err := l.enter(t.Context()); !errors.Is(err, errNotRunning) {
			t.Errorf("another call: error %v", err)
		}
		leave()
		synctest.Wait()
		if !ended {
			t.Error("it does not end after the last call")
		}
	})
}
