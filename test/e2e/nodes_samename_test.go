package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestSameNodeName have blocks of their own: a machine that is replaced may run on.
func TestSameNodeName(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	first, second := api.newRig("--node-name=same"), api.newRig("--node-name=same")
	p, q := first.pod(), second.pod()
	if blockOf(p.ipv4) == blockOf(q.ipv4) {
		t.Errorf("both have addresses of %s", blockOf(p.ipv4))
	}
	first.agent.Restart(t)
	if again := first.pod(); blockOf(again.ipv4) != blockOf(p.ipv4) {
		t.Errorf("after a restart the address is %s, before %s", again.ipv4, p.ipv4)
	}
	first.agrees()
	second.agrees()
}

// TestCopiedDisk has two machines with one key: neither gives out an address, and both say why.
func TestCopiedDisk(t *testing.T) {
	t.Parallel()
	api := newAPI(t)
	first := api.newRig("--node-name=same")
	first.pod()
	second := api.newRig("--node-name=same")
	second.agent.Kill(t)
	if err := os.MkdirAll(filepath.Join(second.node.Dir, "store"), 0o700); err != nil { // it may not have written yet
		t.Fatal(err)
	}
	for _, name := range []string{"node-key", "multipool.json"} {
		text, err := os.ReadFile(filepath.Join(first.node.Dir, "store", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(second.node.Dir, "store", name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	second.agent.Start(t)
	for _, r := range []*rig{first, second} {
		testutil.Eventually(t, func() error {
			if found := namesOf(r.examined().Findings); found != "node-contested" {
				return fmt.Errorf("the doctor finds %q", found)
			}
			return nil
		})
		r.failsWith(testutil.NewContainer(t), codeConflict, "a disk was copied: remove node-key in ", "")
		_, err := r.cni.Add(testutil.NewContainer(t))
		failedWith(t, err, "another machine has this node's key")
	}

	// The copy gets a key of its own, and the other one goes on.
	second.agent.Kill(t)
	if err := os.Remove(filepath.Join(second.node.Dir, "store", "node-key")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if done := api.asAdmin("node", "list"); !strings.Contains(done.out, "contested by a copy") {
		t.Errorf("porin node list: %+v", done)
	}
	if done := api.asAdmin("node", "reset", "same", "--incarnation", keyOf(first)); done.code != 0 {
		t.Errorf("porin node reset: %+v", done)
	}
	second.agent.Start(t)
	testutil.Eventually(t, func() error {
		if found := namesOf(first.examined().Findings); found != "" {
			return fmt.Errorf("the doctor finds %q", found)
		}
		return nil
	})
	first.pod()
	second.pod()
}

// keyOf is the key of the rig's node.
func keyOf(r *rig) string {
	text, err := os.ReadFile(filepath.Join(r.node.Dir, "store", "node-key"))
	if err != nil {
		r.Fatal(err)
	}
	return string(text[:len(text)-1])
}
