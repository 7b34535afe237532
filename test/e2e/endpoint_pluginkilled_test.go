package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// connections counts the connections of the agent's socket, also one that the agent has not accepted yet.
func (r *rig) connections() int {
	r.Helper()
	var table []byte
	err := r.node.Do(func() (err error) {
		table, err = os.ReadFile("/proc/thread-self/net/unix")
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return strings.Count(string(table), r.node.Socket+"\n") - 1 // less the listener
}

func TestADDPluginKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=0s")
	c := testutil.NewContainer(t)
	before := r.connections()
	r.signal(unix.SIGSTOP)
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	done := make(chan error, 1)
	go func() {
		_, err := r.cni.AddContext(ctx, c)
		done <- err
	}()
	testutil.Eventually(t, func() error { // its call is under way when it waits in the socket
		if r.connections() <= before {
			return errors.New("there is no call yet")
		}
		return nil
	})
	kill()
	if err := <-done; err == nil {
		t.Error("ADD succeeded without an agent at work")
	}
	r.signal(unix.SIGCONT)
	testutil.Eventually(t, func() error { // the agent notices that its caller has left, or has not begun
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
