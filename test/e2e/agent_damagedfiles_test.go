package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestDamagedLedger(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.pod(), r.pod()
	r.agent.Kill(t)
	ledger := filepath.Join(r.node.StateDir, "ledger.db")
	whole, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for what, content := range map[string][]byte{
		"one byte":         whole[:1],
		"one page":         whole[:page],
		"two pages":        whole[:2*page],
		"three pages":      whole[:3*page],
		"text":             bytes.Repeat([]byte("no ledger\n"), len(whole)/10),
		"zeros":            make([]byte, len(whole)),
		"no first pages":   append(make([]byte, 2*page), whole[2*page:]...),
		"first pages only": append(bytes.Clone(whole[:2*page]), make([]byte, len(whole)-2*page)...),
	} {
		if err := os.WriteFile(ledger, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if said := failingAgent(t, r.node); !strings.Contains(said, ledger) || !strings.Contains(said, "is damaged") {
			t.Errorf("%s: the agent said:\n%s", what, said)
		}
		if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
			t.Fatalf("%s: running containers: %v", what, err)
		}
	}
	if err := os.WriteFile(ledger, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	if n := len(r.endpoints()); n != 2 {
		t.Errorf("%d endpoints after the file was restored", n)
	}
}

func TestEmptyLedgerFile(t *testing.T) {
	r := newRig(t)
	a, b := r.pod(), r.pod()
	r.agent.Kill(t)
	if err := os.Truncate(filepath.Join(r.node.StateDir, "ledger.db"), 0); err != nil {
		t.Fatal(err)
	}
	if said := failingAgent(t, r.node); !strings.Contains(said, "is damaged") {
		t.Errorf("the agent said:\n%s", said)
	}
	if err := testutil.Ping(a.Namespace, b.ipv4, unreachable); err != nil {
		t.Errorf("running containers: %v", err)
	}
}

func TestUnreadableDeletionRecords(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	r.agent.Kill(t)
	r.cni.MustDel(t, p.Container)
	folder := filepath.Join(r.node.StateDir, "deletions")
	for name, text := range map[string]string{"a.delete": "", "b.delete": `{"containerID":`, "c.delete": strings.Repeat("x", 1<<20), "d.tmp": "half"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.Start(t)
	r.nothingLeft()
	aside, err := filepath.Glob(filepath.Join(folder, "*.bad"))
	if err != nil || len(aside) != 3 || !strings.Contains(r.agent.Log(), "a.bad") {
		t.Errorf("set aside: %v, %v", aside, err)
	}
}
