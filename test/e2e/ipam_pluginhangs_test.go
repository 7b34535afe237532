package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// hangingRig is a rig whose IPAM plugin is host-local, and hangs where it is told to.
type hangingRig struct {
	*delegatedRig
	folder string // has a file of the name of each command that hangs while it is there; a process that does writes into it
}

// newHangingRig gives each call of the network the time.
func newHangingRig(t *testing.T, timeout string) *hangingRig {
	t.Helper()
	r := &hangingRig{newDelegatedRig(t), t.TempDir()}
	script := "#!/bin/sh\nfile=" + r.folder + "/$CNI_COMMAND\nif [ -e $file ]; then echo yes >$file; while [ -e $file ]; do sleep 0.1; done; fi\nexec " + testutil.IPAMPlugin(t, "host-local") + "\n"
	if err := os.WriteFile(filepath.Join(r.node.PluginDir, "hangs"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r.ipam["type"] = "hangs"
	r.cni = r.node.NewCNI(t, testutil.CNIConfig{Bin: r.bin, Network: "porin", Plugin: map[string]any{"ipam": r.ipam, "timeout": timeout}})
	return r
}

func (r *hangingRig) hang(command string) {
	r.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, command), nil, 0o600); err != nil {
		r.Fatal(err)
	}
}

func (r *hangingRig) goOn(command string) {
	r.Helper()
	if err := os.Remove(filepath.Join(r.folder, command)); err != nil {
		r.Fatal(err)
	}
}

// hangs waits until a process hangs.
func (r *hangingRig) hangs(command string) {
	r.Helper()
	testutil.Eventually(r, func() error {
		text, err := os.ReadFile(filepath.Join(r.folder, command))
		if err == nil && len(text) == 0 {
			err = errors.New("no process hangs")
		}
		return err
	})
}

func TestIPAMPluginHangs(t *testing.T) {
	t.Parallel()
	r := newHangingRig(t, "9s")
	plain := r.node.NewCNI(t, testutil.CNIConfig{Bin: r.bin, Network: "plain", Plugin: map[string]any{"timeout": "20s"}})
	var pods []pod
	for range 24 {
		pods = append(pods, r.pod())
	}
	others := []*testutil.Container{testutil.NewContainer(t), testutil.NewContainer(t), testutil.NewContainer(t)}
	for _, c := range others[:2] {
		plain.MustAdd(t, c)
	}
	r.hang("DEL")
	var group sync.WaitGroup
	for _, p := range pods {
		group.Go(func() { _ = r.cni.Del(p.Container) }) // which ends with a record
	}
	group.Wait()
	plain.MustAdd(t, others[2])
	plain.MustDel(t, others[0])
	r.agent.Kill(t)
	began := time.Now()
	group.Go(func() { plain.MustDel(t, others[1]) }) // while the agent starts
	r.agent.Start(t)
	if took := time.Since(began); took > 25*time.Second { // it was 63 s
		t.Errorf("the agent served after %s", took)
	}
	group.Wait()
	plain.MustDel(t, others[2])
	r.goOn("DEL")
	testutil.Eventually(t, func() error {
		if left, reserved := r.endpoints(), r.reserved(); len(left)+len(reserved) > 0 {
			return fmt.Errorf("%d endpoints and %d addresses are left", len(left), len(reserved))
		}
		return nil
	})
	r.nothingLeft()
}

// TestDELWaitsForADDOfKilledAgent: the IPAM plugin outlives the agent, and gives an address that is to be released.
func TestDELWaitsForADDOfKilledAgent(t *testing.T) {
	t.Parallel()
	r := newHangingRig(t, "9s")
	r.hang("ADD")
	c := testutil.NewContainer(t)
	added := make(chan error, 1)
	go func() {
		_, err := r.cni.Add(c)
		added <- err
	}()
	r.hangs("ADD")
	r.agent.Kill(t)
	r.agent.Start(t)
	<-added             // whatever came of it
	r.cni.MustDel(t, c) // before the plugin has given anything: it ends with a record
	r.goOn("ADD")
	testutil.Eventually(t, func() error {
		if left := r.endpoints(); len(left) > 0 {
			return fmt.Errorf("%d endpoints are left", len(left))
		}
		return nil
	})
	r.holds("after DEL")
}
