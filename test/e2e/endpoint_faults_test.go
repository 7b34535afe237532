package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// CNI error codes (specification 1.1.0, section 5).
const (
	codeInvalidConfig = 7
	codeTryAgainLater = 11
	codeNotAvailable  = 50
)

func ids(all []v1.Endpoint) (ids []uint16) {
	for _, ep := range all {
		ids = append(ids, ep.ID)
	}
	return ids
}

// failedWith checks the words of an error, and that they are one line.
func failedWith(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with %q", err, words)
	}
}

func failedAs(t *testing.T, err error, code uint) {
	t.Helper()
	if failure, ok := errors.AsType[*types.Error](err); !ok || failure.Code != code {
		t.Errorf("error %#v, want CNI code %d", err, code)
	}
}

func TestInterfaceNameInUse(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	// The same container again, as after a lost answer: the endpoint that is there is the answer.
	again := r.add(p.Container)
	if err := testutil.Ping(again.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	if n := len(r.endpoints()); n != 1 {
		t.Errorf("%d endpoints", n)
	}
	// An interface of another plugin in the container.
	c := testutil.NewContainer(t)
	elsewhere := testutil.NetNS(t)
	if _, err := c.AddVeth(testutil.Veth{Name: "eth0", MAC: testutil.MAC(2, 9), Peer: elsewhere, PeerName: "other"}); err != nil {
		t.Fatal(err)
	}
	_, err := r.cni.Add(c)
	failedAs(t, err, codeConflict)
	failedWith(t, err, "the container already has an interface of this name")
	r.cni.MustDel(t, c)
	if mac := c.Link(t, "eth0").Attrs().HardwareAddr; !bytes.Equal(mac, testutil.MAC(2, 9)) {
		t.Errorf("the other plugin's interface has the MAC %s", mac)
	}
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}

func TestExhaustedPool(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/30", "--ipam-quarantine=10m")
	p := r.pod()
	c := testutil.NewContainer(t)
	refused(t, r, c, "pool default: no free address: 10.9.0.0/30 has 1, of which 1 in use")
	r.cni.MustDel(t, p.Container)
	refused(t, r, c, "1 in quarantine (the next is free in")
	r.nothingLeft()
}

func TestIPv6Disabled(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	c.Sysctl(t, "net/ipv6/conf/all/disable_ipv6", "1")
	c.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
	p := r.add(c)
	if err := testutil.Ping(p.Namespace, r.node.IPv6, reach); err != nil {
		t.Error(err)
	}
}

func TestSpoofedSource(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	// a takes b's address in place of its own: nothing of it must arrive anywhere.
	handle, eth0 := a.Netlink(t), a.Link(t, "eth0")
	// In this order: the routes go with an interface's last address.
	err := handle.AddrAdd(eth0, testutil.Address(prefixOf(b.ipv4)))
	if err == nil {
		err = handle.AddrDel(eth0, testutil.Address(prefixOf(a.ipv4)))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := testutil.Ping(a.Namespace, r.node.IPv4, unreachable); err == nil {
		t.Error("a packet with another's address was answered")
	}
	out, err := r.porin("endpoint", "get", "container-id:"+a.ID, "-o", "json")
	if err != nil || !strings.Contains(out, "spoof") {
		t.Errorf("the drop is not shown: %v\n%s", err, out)
	}
}

func TestNoBPFFileSystem(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	out := failingAgent(t, node, "--bpf-root="+filepath.Join(node.Dir, "bpf"))
	if !strings.Contains(out, "mount -t bpf") {
		t.Errorf("the agent does not say what to do:\n%s", out)
	}
}

// failingAgent runs an agent that must end by itself and not well, and returns what it says.
func failingAgent(t *testing.T, node *testutil.Node, flags ...string) string {
	t.Helper()
	args := append([]string{
		"--node-name=x", "--api-socket=" + node.Socket, "--state-dir=" + node.StateDir, "--bpf-root=" + node.BPFRoot,
		"--ipam-pod-cidr=10.0.0.0/24",
	}, flags...)
	ctx, cancel := context.WithTimeout(t.Context(), processTimeout) // an agent that starts ends here, as a failure
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(testutil.Build(t), "porin-agent"), args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || ctx.Err() != nil {
		t.Errorf("the agent did not fail: %v\n%s", err, out.String())
	}
	return out.String()
}

func TestSecondAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	out := failingAgent(t, r.node)
	if !strings.Contains(out, r.node.Socket) || !strings.Contains(out, fmt.Sprint(r.agent.PID())) || strings.Count(out, "\n") != 2 { // that it starts, and why it does not
		t.Errorf("same socket:\n%s", out)
	}
	other := "--api-socket=" + filepath.Join(r.node.Dir, "other.sock")
	out = failingAgent(t, r.node, other, "--bpf-root="+r.node.BPFRoot+"-other")
	if !strings.Contains(out, "ledger "+r.node.StateDir) || !strings.Contains(out, "another process has it open") {
		t.Errorf("same state-dir:\n%s", out)
	}
	out = failingAgent(t, r.node, other, "--state-dir="+filepath.Join(r.node.Dir, "other"))
	if !strings.Contains(out, "BPF root "+r.node.BPFRoot) || !strings.Contains(out, "another process has it open") {
		t.Errorf("same bpf-root:\n%s", out)
	}
	if err := r.cni.Status(); err != nil {
		t.Errorf("the first agent: %v", err)
	}
}

func TestSocketPathIsFile(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	if err := os.WriteFile(node.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	failsWith(t, node, nil, "a file that is no socket is in the way")
	if text, err := os.ReadFile(node.Socket); err != nil || string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
