package e2e

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestADDAndDELAtTheSameTimeLeaveAllOrNothing(t *testing.T) {
	r := newRig(t, "--ipam-quarantine=0s", "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/64")
	var loops sync.WaitGroup
	for range 8 {
		c := testutil.NewContainer(t)
		loops.Go(func() {
			for range 5 {
				var both sync.WaitGroup
				both.Go(func() {
					if _, err := r.cni.Add(c); err != nil && strings.Contains(err.Error(), "\n") {
						t.Errorf("ADD: %v", err)
					}
				})
				both.Go(func() {
					if err := r.cni.Del(c); err != nil {
						t.Errorf("DEL: %v", err)
					}
				})
				both.Wait()
			}
			if err := r.cni.Del(c); err != nil {
				t.Errorf("the last DEL: %v", err)
			}
		})
	}
	loops.Wait()
	r.nothingLeft()
}

// TestALinkThatGoesDuringAnADDIsWorthAnotherTry is what a starting agent does to an ADD: it takes a link that belongs
// to nobody yet for one that was left.
func TestALinkThatGoesDuringAnADDIsWorthAnotherTry(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	r.signal(unix.SIGSTOP)
	done := make(chan error, 1)
	go func() {
		_, err := r.cni.Add(c)
		done <- err
	}()
	conn, name := r.node.Conn(t), v1.HostInterfaceName(c.ID, c.IfName)
	var host rtnl.Link
	testutil.Eventually(t, reach, func() error { return conn.Do(rtnl.LinkByName(name, &host)) })
	if err := conn.Do(rtnl.DelLink(host.Index)); err != nil {
		t.Fatal(err)
	}
	r.signal(unix.SIGCONT)
	err := <-done
	if failure, ok := errors.AsType[*types.Error](err); err != nil && (!ok || failure.Code != codeTryAgainLater) {
		t.Errorf("error %v, want success, or CNI code %d", err, codeTryAgainLater)
	}
	r.cni.MustDel(t, c)
	r.nothingLeft()
}
