package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

func TestRestartKeepsConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.pod(), r.pod()
	server := b.Echo(t, b.ipv6)
	conn, err := a.Dial(server, reach)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	say := func(when string) {
		t.Helper()
		_ = conn.SetDeadline(time.Now().Add(reach))
		buf := make([]byte, 5)
		if _, err := conn.Write([]byte("porin")); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if _, err := conn.Read(buf); err != nil || string(buf) != "porin" {
			t.Fatalf("%s: read %q, %v", when, buf, err)
		}
	}
	before, kernel, inspection := r.status(), kernelState(t, r.node), fmt.Sprint(withoutPolicyEntries(r.inspect()))
	for _, end := range []func(){func() { r.agent.Kill(t) }, func() { r.agent.Stop(t) }} {
		say("before the end")
		end()
		say("without an agent")
		r.agent.Start(t)
		say("with the next agent")
		after := r.status()
		if after.Restored.Adopted != 2 || after.Restored.Undone != 0 || !after.Datapath.Adopted ||
			fmt.Sprint(after.Datapath.Programs) != fmt.Sprint(before.Datapath.Programs) {
			t.Errorf("restored %+v, datapath %+v, was %+v", after.Restored, after.Datapath, before.Datapath)
		}
		if now := kernelState(t, r.node); now != kernel {
			t.Errorf("the kernel was\n%s\nand is\n%s", kernel, now)
		}
		if now := fmt.Sprint(withoutPolicyEntries(r.inspect())); now != inspection {
			t.Errorf("programs and maps were\n%s\nand are\n%s", inspection, now)
		}
	}
	// The address of a living endpoint is not given out again.
	if p := r.pod(); p.ipv4 == a.ipv4 || p.ipv4 == b.ipv4 {
		t.Errorf("%s was given out twice", p.ipv4)
	}
}

// withoutPolicyEntries leaves out how many entries the maps of the policy have: a new agent writes the other copy of
// it.
func withoutPolicyEntries(found datapath.Inspection) datapath.Inspection {
	for i := range found.Maps {
		switch found.Maps[i].Name {
		case bpf.Addresses, bpf.Prefixes, bpf.Tables, bpf.Rows:
			found.Maps[i].Entries = 0
		}
	}
	return found
}

func TestWithoutAnAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.pod(), r.pod()
	r.agent.Kill(t)

	c := testutil.NewContainer(t)
	_, err := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Plugin: map[string]any{"timeout": "1s"}}).Add(c)
	failedAs(t, err, codeTryAgainLater)
	failedWith(t, err, r.node.Socket)
	if err := r.cni.Status(); err != nil {
		t.Errorf("STATUS while the agent is away: %v", err)
	}
	if names := c.LinkNames(t); len(names) != 1 {
		t.Errorf("links after a failed ADD: %v", names)
	}

	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, a.Container)
	if names := a.LinkNames(t); len(names) != 1 {
		t.Errorf("links after DEL: %v", names)
	}
	r.agent.Start(t)
	all := r.endpoints()
	if len(all) != 1 || all[0].ContainerID != b.ID {
		t.Errorf("endpoints: %+v", all)
	}
	if p := r.pod(); p.ipv4 == a.ipv4 {
		t.Errorf("%s was given out again without quarantine", p.ipv4)
	}
	r.cni.MustDel(t, b.Container)
}

func TestRestartRemovesOrphans(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	r.agent.Kill(t)
	// A link as the plugin makes it, whose ADD died before it called the agent.
	orphan := testutil.NewContainer(t)
	left := testutil.Veth{Name: "porabcdefghijkl", MAC: testutil.MAC(2, 1), Peer: orphan.Namespace, PeerName: "eth0"}
	// And a link that only looks like it.
	foreign := testutil.Veth{Name: "porter0", MAC: testutil.MAC(2, 3), Peer: orphan.Namespace, PeerName: "eth1"}
	for _, veth := range []testutil.Veth{left, foreign} {
		if _, err := r.node.AddVeth(veth); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.Start(t)
	if names := r.node.LinkNames(t); slices.Contains(names, left.Name) || !slices.Contains(names, foreign.Name) {
		t.Errorf("links: %v", names)
	}
	if err := testutil.Ping(p.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
}

func TestDELPartsGone(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	p.Close() // the namespace ends, and eth0 with it
	r.cni.MustDel(t, p.Container)
	r.cni.MustDel(t, p.Container)
	r.cni.MustDel(t, testutil.NewContainer(t)) // no agent knows it
	r.nothingLeft()
}

func TestGC(t *testing.T) {
	r := newRig(t)
	keep, lose := r.pod(), r.pod()
	other := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Network: "other"})
	c := testutil.NewContainer(t)
	other.MustAdd(t, c)
	// As a runtime that has lost its cache: libcni itself detaches nothing.
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":%q,"stateDir":%q,"cni.dev/valid-attachments":[{"containerID":%q,"ifname":"eth0"}]}`,
		r.node.Socket, r.node.StateDir, keep.ID)
	if _, err := r.cni.Exec("GC", nil, []byte(config)); err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, ep := range r.endpoints() {
		left[ep.ContainerID] = true
	}
	if !left[keep.ID] || left[lose.ID] || !left[c.ID] {
		t.Errorf("left %v, want %.12s and %.12s of the other network, not %.12s", left, keep.ID, c.ID, lose.ID)
	}
}

func TestCHECKAddressRemoved(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	if err := r.cni.Check(p.Container); err != nil {
		t.Fatal(err)
	}
	if err := p.Netlink(t).AddrDel(p.Link(t, "eth0"), testutil.Address(prefixOf(p.ipv6))); err != nil {
		t.Fatal(err)
	}
	failedWith(t, r.cni.Check(p.Container), p.ipv6.String())
}
