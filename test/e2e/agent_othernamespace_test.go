package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestStartElsewhereWithoutLedger starts an agent in another network namespace, with the node's BPF maps and no ledger
// that would tell it so.
func TestStartElsewhereWithoutLedger(t *testing.T) {
	r := newRig(t)
	var pods []pod
	for range 6 {
		pods = append(pods, r.pod())
	}
	talk := r.converse(pods[0])
	reaches := func(when string) {
		t.Helper()
		talk.goesOn(when)
		if err := testutil.Ping(pods[0].Namespace, pods[1].ipv4, reach); err != nil {
			t.Errorf("%s: from pod to pod: %v", when, err)
		}
	}
	r.agent.Kill(t)
	if err := os.RemoveAll(r.node.StateDir); err != nil {
		t.Fatal(err)
	}
	_, agent := r.elsewhere()
	agent.Start(t)
	if held := r.status().Held; held.Count != 6 {
		t.Errorf("held %+v", held)
	}
	reaches("with an agent elsewhere")
	agent.Stop(t)
	if err := r.agent.TryStart(); err == nil {
		t.Error("the agent runs with a ledger of another namespace")
	}
	if err := os.Remove(filepath.Join(r.node.StateDir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	reaches("with the agent back")
	r.reached("a new pod", r.pod())
	if held := r.status().Held; held.Count != 6 {
		t.Errorf("held when the agent is back: %+v", held)
	}
	reaches("with a new pod")
	for _, p := range pods {
		r.cni.MustDel(t, p.Container)
	}
	if held := r.status().Held; held.Count != 0 {
		t.Errorf("held after all DELs: %+v", held)
	}
}

// TestDELUnknownElsewhere asks for the agent's own name for a link without a mark of its owner.
func TestDELUnknownElsewhere(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	stranger := testutil.NewContainer(t)
	stranger.ID = r.node.HostLink(t, p.Container).Attrs().Name
	for _, stranger.IfName = range []string{"unknown", "/unknown"} {
		_ = r.cni.Del(stranger)
		r.reached("after DEL of "+stranger.IfName, p)
	}
}
