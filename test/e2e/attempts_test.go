package e2e

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// signal sends one to the agent.
func (r *rig) signal(s unix.Signal) {
	r.Helper()
	if err := unix.Kill(r.agent.PID(), s); err != nil {
		r.Fatal(err)
	}
}

func TestAnAgentThatHangsCostsNoMoreThanTheTimeout(t *testing.T) {
	r := newRig(t)
	impatient := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{"timeout": "300ms"}})
	p, c := r.pod(), testutil.NewContainer(t)
	r.signal(unix.SIGSTOP)
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"ADD": func() error { _, err := impatient.Add(c); return err },
		"DEL": func() error { return impatient.Del(p.Container) },
	} {
		calls.Go(func() {
			began := time.Now()
			failedAs(t, call(), codeTryAgainLater)
			if took := time.Since(began); took > 2*reach { // the undo of an ADD has a time of its own
				t.Errorf("%s took %v", name, took)
			}
		})
	}
	calls.Wait()
	if err := testutil.Ping(p.Namespace, r.node.IPv4, unreachable); err == nil {
		t.Error("a container that is to be deleted still sends")
	}
	if links, err := c.Conn(t).Links(); err != nil || len(links) != 1 {
		t.Errorf("links after a failed ADD: %v, %v", links, err)
	}
	r.signal(unix.SIGCONT)
	for _, container := range []*testutil.Container{p.Container, c} {
		r.cni.MustDel(t, container)
	}
	r.nothingLeft()
}

func TestTheSameADDManyTimesAtOnceIsOneAttachment(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() { _, _ = r.cni.Add(c) }) // whoever comes later takes the link of the one before
	}
	calls.Wait()
	p := r.add(c)
	if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
		t.Error(err)
	}
	if all := r.endpoints(); len(all) != 1 || all[0].State != "ready" {
		t.Errorf("endpoints: %+v", all)
	}
	for range 8 {
		calls.Go(func() {
			if err := r.cni.Del(c); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	calls.Wait()
	r.nothingLeft()
}

func TestAnADDThatBeganBeforeTheDELIsRefused(t *testing.T) {
	r := newRig(t)
	var began unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &began); err != nil {
		t.Fatal(err)
	}
	p := r.pod()
	old := r.endpoints()[0]
	r.cni.MustDel(t, p.Container)
	var host rtnl.Link
	mac, err := rtnl.ParseMAC(old.Host.MAC)
	if err != nil {
		t.Fatal(err)
	}
	// The plugin of an ADD whose runtime has given it up.
	veth := rtnl.Veth{Name: old.Host.Name, MAC: mac, Peer: rtnl.VethPeer{Name: "eth0", MAC: rtnl.MAC{2, 1}, NetNS: p.FD()}}
	conn := r.node.Conn(t)
	if err := conn.Do(rtnl.NewVeth(veth), rtnl.LinkByName(old.Host.Name, &host)); err != nil {
		t.Fatal(err)
	}
	request := v1.EndpointRequest{
		Network: "porin", Began: began.Nano(), Container: old.Container,
		Host: v1.Interface{Name: old.Host.Name, Index: host.Index, MAC: old.Host.MAC},
	}
	if _, err := r.api.CreateEndpoint(t.Context(), p.ID, "eth0", request); err == nil {
		t.Errorf("it was let in: %+v", r.endpoints())
	}
	if err := conn.Do(rtnl.DelLinkByName(old.Host.Name)); err != nil {
		t.Logf("the link: %v", err)
	}
	r.add(p.Container) // one that begins after it is a new life
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}
