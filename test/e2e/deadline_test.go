package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

func TestOfAnADDWhosePluginIsKilledNothingIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s")
	c := testutil.NewContainer(t)
	r.signal(unix.SIGSTOP)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	done := make(chan error, 1)
	go func() {
		_, err := r.cni.AddContext(ctx, c)
		done <- err
	}()
	testutil.Eventually(t, reach, func() error { // its call is under way when that is noted on the link
		if !r.hasHostLink(c) || r.host(c).Alias == "" {
			return errors.New("there is no call yet")
		}
		return nil
	})
	kill()
	if err := <-done; err == nil {
		t.Error("ADD succeeded without an agent at work")
	}
	r.signal(unix.SIGCONT)
	testutil.Eventually(t, reach, func() error { // the agent notices that its caller has left, or has not begun by then
		r.answered()
		if all := r.endpoints(); len(all) > 0 || r.hasHostLink(c) {
			return fmt.Errorf("endpoints %+v, link %v", all, r.hasHostLink(c))
		}
		return nil
	})
	r.noLinks(c)
	r.agrees()
	r.nothingLeft()
	r.add(c) // which the runtime may try again
	r.cni.MustDel(t, c)
}
