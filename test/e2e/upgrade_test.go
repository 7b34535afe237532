package e2e

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// pingPong sends datagrams there and back, one at a time, and counts those that do not come back.
type pingPong struct {
	there, lost int
	stop        chan struct{}
	running     sync.WaitGroup
}

func (r *rig) pingPong(from, to pod, addr netip.Addr) *pingPong {
	p := &pingPong{stop: make(chan struct{})}
	server, client := listenUDP(r, to.Namespace, addr), listenUDP(r, from.Namespace, netip.Addr{})
	p.running.Go(func() {
		buf := make([]byte, 100)
		for {
			n, sender, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], sender)
		}
	})
	target := netip.AddrPortFrom(addr, portOf(server))
	p.running.Go(func() {
		defer server.Close()
		buf := make([]byte, 100)
		for {
			select {
			case <-p.stop:
				return
			default:
			}
			p.there++
			_, err := client.WriteToUDPAddrPort(fmt.Append(nil, p.there), target)
			_ = client.SetReadDeadline(time.Now().Add(unreachable))
			n, _, readErr := client.ReadFromUDPAddrPort(buf)
			if err != nil || readErr != nil || string(buf[:n]) != fmt.Sprint(p.there) {
				p.lost++
			}
		}
	})
	return p
}

func (p *pingPong) end() { close(p.stop); p.running.Wait() }

func TestAnUpgradeOfTheProgramsLosesNoPacket(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	ours := r.status().Datapath
	r.agent.Kill(t)
	former := r.formerVersion()
	four, six := r.pingPong(a, b, b.ipv4), r.pingPong(b, a, a.ipv6)
	for range 3 {
		r.agent.Start(t)
		status := r.status()
		if status.Restored.Replaced != 2 || len(status.Restored.Reasons) != 2 || status.Datapath.Adopted || status.Datapath.Digest != ours.Digest {
			t.Errorf("restored %+v, datapath %+v", status.Restored, status.Datapath)
		}
		r.nothingOf(former)
		if err := testutil.Ping(a.Namespace, r.node.IPv4, reach); err != nil {
			t.Error(err)
		}
		r.agent.Kill(t)
		former = r.formerVersion()
	}
	four.end()
	six.end()
	if four.lost+six.lost > 0 || four.there < 100 || six.there < 100 {
		t.Errorf("lost %d of %d datagrams by IPv4, %d of %d by IPv6", four.lost, four.there, six.lost, six.there)
	}
	r.agent.Start(t)
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

func TestMapsOfAnotherSizeAreRefusedAndNothingBreaks(t *testing.T) {
	r := newRig(t, "--datapath-max-endpoints=100")
	a, b := r.pod(), r.pod()
	before := fmt.Sprint(r.inspect())
	r.agent.Kill(t)
	failsWith(t, r.node, []string{"--datapath-max-endpoints=200"}, "drain the node and remove "+filepath.Join(r.node.BPFRoot, "maps"))
	if after := fmt.Sprint(r.inspect()); after != before {
		t.Errorf("the kernel had\n%s\nand has\n%s", before, after)
	}
	if err := testutil.Ping(a.Namespace, b.ipv6, reach); err != nil {
		t.Error(err)
	}
	r.agent.Start(t)
	if status := r.status(); status.Restored.Replaced != 2 || len(status.Restored.Reasons) != 2 || !status.Datapath.Adopted {
		t.Errorf("restored %+v, datapath %+v", status.Restored, status.Datapath)
	}
}

func TestMoreEndpointsThanTheMapsHaveRoomForAreRefused(t *testing.T) {
	r := newRig(t, "--datapath-max-endpoints=2")
	first := r.pod()
	r.pod()
	c := testutil.NewContainer(t)
	refused(t, r, c, "datapath")
	r.cni.MustDel(t, first.Container)
	r.add(c)
}
