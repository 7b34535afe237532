package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"porin.dev/porin/internal/testutil"
)

func heldGauge(reason string) string { return fmt.Sprintf(`porin_held_endpoints{reason=%q}`, reason) }

// conversation is a TCP connection from the node to a pod, which must outlive what happens to the agent.
type conversation struct {
	*rig
	net.Conn
}

func (r *rig) converse(p pod) conversation {
	r.Helper()
	conn, err := r.node.Dial(p.Echo(r, p.ipv4), reach)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	return conversation{r, conn}
}

func (c conversation) goesOn(when string) {
	c.Helper()
	_ = c.SetDeadline(time.Now().Add(reach))
	buf := make([]byte, 5)
	if _, err := c.Write([]byte("porin")); err != nil {
		c.Fatalf("%s: %v", when, err)
	}
	if _, err := c.Read(buf); err != nil || string(buf) != "porin" {
		c.Fatalf("%s: read %q, %v", when, buf, err)
	}
}

// findsHeld checks that the doctor finds what is held, and nothing else.
func (r *rig) findsHeld(n int) {
	r.Helper()
	kinds := map[string]int{}
	for _, f := range r.answered().Findings {
		kinds[f.Kind]++
	}
	if diff := cmp.Diff(map[string]int{"endpoint-held": n}, kinds); diff != "" {
		r.Errorf("findings (-want +got):\n%s", diff)
	}
}

// TestStartWithoutLedger starts an agent with an empty state directory beside six running pods.
func TestStartWithoutLedger(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--ipam-pod-cidr=10.100.1.0/28", "--doctor-interval=1s", "--metrics-address="+metricsAddress)
	var pods []pod
	for range 6 {
		p := r.add(testutil.NewContainer(t))
		pods = append(pods, p)
	}
	talk, kernel := r.converse(pods[0]), kernelState(t, r.node)
	down := r.node.HostLink(t, pods[5].Container)
	r.agent.Kill(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	talk.goesOn("after the start")
	status := r.status()
	if !status.Ready || status.Held.Count != 6 || len(status.Restored.Removed) > 0 {
		t.Errorf("ready %v, held %+v, removed %v", status.Ready, status.Held, status.Restored.Removed)
	}
	for _, h := range status.Held.Endpoints {
		if h.Reason != "not-on-record" || !h.Addresses.IPv4.IsValid() {
			t.Errorf("held %+v", h)
		}
	}
	if diff := cmp.Diff(kernel, kernelState(t, r.node)); diff != "" {
		t.Errorf("the node's kernel (-before +now):\n%s", diff)
	}
	r.expect(map[string]float64{heldGauge("not-on-record"): 6, heldGauge("link-lost"): 0})
	if out := r.cli("status").out; !strings.Contains(out, "Held:") || !strings.Contains(out, "porin restore accept") {
		t.Errorf("porin status:\n%s", out)
	}

	// Nobody gets their addresses, and the doctor does not repair.
	taken := map[string]bool{}
	for _, p := range pods {
		taken[p.ipv4.String()] = true
	}
	var others []pod
	for {
		c := testutil.NewContainer(t)
		if _, err := r.cni.Add(c); err != nil {
			failedWith(t, err, "no free address")
			break
		}
		p := r.add(c)
		if others = append(others, p); taken[p.ipv4.String()] || len(others) > 16 {
			t.Fatalf("%s was given out", p.ipv4)
		}
	}
	looks := r.doctorLooks()
	testutil.Eventually(t, func() error { // a repair comes with the second look in a row
		if now := r.doctorLooks(); now < looks+3 {
			return fmt.Errorf("the doctor has looked %v times since", now-looks)
		}
		return nil
	})
	r.findsHeld(6)
	talk.goesOn("after looks of the doctor")

	// The next start holds them as well, though there are more others by now; also one whose link is down.
	r.agent.Kill(t)
	if err := r.node.Netlink(t).LinkSetDown(down); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	talk.goesOn("after the next start")
	if held := r.status().Held; held.Count != 6 {
		t.Errorf("the next start holds %+v", held)
	}

	// DEL, and an ADD of the same attachment.
	r.cni.MustDel(t, pods[1].Container)
	if r.hasHostLink(pods[1].Container) {
		t.Error("DEL has left the link")
	}
	r.cni.MustDel(t, pods[5].Container)
	if held := r.status().Held; held.Count != 4 {
		t.Errorf("after two DELs: held %+v", held)
	}
	one := pods[2].ID + ":eth0"
	if done := r.cli("restore", "accept", one); done.code != 0 || r.hasHostLink(pods[2].Container) {
		t.Errorf("porin restore accept %s: %+v", one, done)
	}
	if done := r.cli("restore", "accept"); done.code != 0 || !strings.Contains(done.out, "3 held endpoints removed") {
		t.Errorf("porin restore accept: %+v", done)
	}
	for _, p := range others {
		r.cni.MustDel(t, p.Container)
	}
	r.nothingLeft()
	r.agrees()
}

// TestStartWithoutLedgerFewPods: a new ledger explains nothing, so two pods are held, too.
func TestStartWithoutLedgerFewPods(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	r.agent.Kill(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	if held := r.status().Held; held.Count != 2 || !r.hasHostLink(a.Container) || !r.hasHostLink(b.Container) {
		t.Errorf("held %+v, links %v", held, r.node.LinkNames(t))
	}
	if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
		t.Error(err)
	}
	if c := r.pod(); c.ipv4 == a.ipv4 || c.ipv4 == b.ipv4 {
		t.Errorf("the address %s of a held container was given out", c.ipv4)
	} else {
		r.cni.MustDel(t, c.Container)
	}
	r.agent.Restart(t) // the ledger is not new any more, and has them as held
	if held := r.status().Held; held.Count != 2 {
		t.Errorf("after another start: held %+v", held)
	}
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// TestStartWithoutLinks deletes the links of six of seven pods while no agent runs.
func TestStartWithoutLinks(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.100.1.0/28")
	var pods []pod
	for range 7 {
		pods = append(pods, r.pod())
	}
	r.agent.Kill(t)
	for _, p := range pods[1:] {
		if err := r.node.Netlink(t).LinkDel(r.node.HostLink(t, p.Container)); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.Start(t)
	if status := r.status(); status.Held.Count != 6 || status.Restored.Adopted != 1 || status.Restored.Undone != 0 {
		t.Errorf("held %+v, restored %+v", status.Held, status.Restored)
	}
	if err := testutil.Ping(r.node.Namespace, pods[0].ipv4, reach); err != nil {
		t.Error(err)
	}
	r.findsHeld(6)
	again := r.add(pods[1].Container) // a new life of the attachment ends its hold
	r.cni.MustDel(t, pods[2].Container)
	if held := r.status().Held; held.Count != 4 {
		t.Errorf("after an ADD and a DEL: held %+v", held)
	}
	if done := r.cli("restore", "accept"); done.code != 0 {
		t.Errorf("porin restore accept: %+v", done)
	}
	r.cni.MustDel(t, again.Container)
	r.cni.MustDel(t, pods[0].Container)
	r.nothingLeft()
}

// elsewhere is an agent with the folders of the node in another network namespace.
func (r *rig) elsewhere() (*testutil.Node, *testutil.Agent) {
	r.Helper()
	node := *r.node
	node.Namespace = testutil.NetNS(r)
	agent := node.NewAgent(testutil.Build(r))
	r.Cleanup(agent.End)
	return &node, agent
}

// TestStartInOtherNamespace starts the agent as a DaemonSet without hostNetwork does: it exits with one line and
// touches nothing.
func TestStartInOtherNamespace(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	talk := r.converse(a)
	r.agent.Kill(t)
	node, agent := r.elsewhere()
	state := func() string {
		t.Helper()
		ledger, err := os.ReadFile(filepath.Join(r.node.StateDir, "ledger.db"))
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s\nelsewhere\n%s\nprograms and maps %v\nledger %x", kernelState(t, r.node), kernelState(t, node), r.inspect(), sha256.Sum256(ledger))
	}
	before, log := state(), agent.Log()
	if err := agent.TryStart(); err == nil {
		t.Fatal("the agent runs in another namespace")
	}
	line := strings.TrimPrefix(agent.Log(), log)
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "hostNetwork: true") || !strings.Contains(line, "remove "+r.node.StateDir) {
		t.Errorf("it says %q, want one line with what to do", line)
	}
	if now := state(); now != before {
		t.Errorf("the node was\n%s\nand is\n%s", before, now)
	}
	talk.goesOn("with an agent elsewhere")
	r.cni.MustDel(t, b.Container) // which the plugin does without an agent
	if r.hasHostLink(b.Container) {
		t.Error("DEL has left the link")
	}
	r.agent.Start(t)
	talk.goesOn("with the agent back")
	if status := r.status(); status.Held.Count != 0 || status.Restored.Adopted != 1 || status.Restored.Undone != 1 {
		t.Errorf("held %+v, restored %+v", status.Held, status.Restored)
	}
	r.reached("a new pod", r.pod())
}

// TestStartAfterNamespaceIsGone: the node is a container that was restarted, and its administrator removes the ledger.
func TestStartAfterNamespaceIsGone(t *testing.T) {
	r := newRig(t)
	r.pod()
	r.pod()
	r.agent.Kill(t)
	node, agent := r.elsewhere()
	if err := agent.TryStart(); err == nil {
		t.Fatal("the agent runs with the ledger of another namespace")
	}
	if err := os.Remove(filepath.Join(r.node.StateDir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	agent.Start(t)
	cni := node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t)})
	c := testutil.NewContainer(t)
	cni.MustAdd(t, c)
	agent.Kill(t)
	agent.Start(t) // the ledger is of this namespace now
	if status := r.status(); status.Held.Count != 0 || status.Restored.Adopted != 1 || len(r.endpoints()) != 1 {
		t.Errorf("held %+v, restored %+v, endpoints %v", status.Held, status.Restored, r.endpoints())
	}
	cni.MustDel(t, c)
}

// TestStartAfterBoot has a ledger of another boot, with more endpoints than a start takes down without a reason.
func TestStartAfterBoot(t *testing.T) {
	r := newRig(t)
	var pods []pod
	for range 6 {
		pods = append(pods, r.pod())
	}
	r.startAfterBoot()
	if status := r.status(); status.Held.Count != 0 || status.Restored.Undone != 6 || len(r.endpoints()) != 0 {
		t.Errorf("held %+v, restored %+v", status.Held, status.Restored)
	}
	r.reached("the same container again", r.add(pods[0].Container))
	r.reached("another one", r.pod())
	r.agent.Restart(t)
	if restored := r.status().Restored; restored.Adopted != 2 {
		t.Errorf("restored %+v", restored)
	}
}

// startAfterBoot kills the agent and starts it with a ledger of another boot.
func (r *rig) startAfterBoot() {
	r.Helper()
	r.agent.Kill(r.T)
	changeBoot(r.T, filepath.Join(r.node.StateDir, "ledger.db"))
	r.agent.Start(r.T)
}

// doctorLooks is how often the doctor has looked at everything.
func (r *rig) doctorLooks() float64 { return r.metrics()["porin_doctor_examination_seconds_count"] }

// changeBoot has a ledger say that it is of another boot.
func changeBoot(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("origin-v1"))
		var origin map[string]any
		if err := json.Unmarshal(bucket.Get([]byte("origin")), &origin); err != nil {
			return err
		}
		origin["Boot"] = "00000000-0000-0000-0000-000000000000"
		value, err := json.Marshal(origin)
		return errors.Join(err, bucket.Put([]byte("origin"), value))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestStartAfterBootWithIPAMPlugin: the plugin takes its addresses back, of a held link too, whose DEL names it.
func TestStartAfterBootWithIPAMPlugin(t *testing.T) {
	t.Parallel()
	r := newDelegatedRig(t)
	var pods []pod
	for range 5 {
		pods = append(pods, r.pod())
	}
	r.startAfterBoot()
	r.holds("after a boot")

	for i, p := range pods {
		pods[i] = r.add(p.Container)
	}
	r.agent.Kill(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	if held := r.status().Held; held.Count != 5 {
		t.Errorf("held %+v", held)
	}
	r.holds("while they are held", of(pods...)...)
	for _, p := range pods {
		r.cni.MustDel(t, p.Container)
	}
	r.holds("after DELs")
	r.nothingLeft()
}
