package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// recorded are the deletions that the plugin has left to the agent.
func (r *rig) recorded() (names []string) {
	r.Helper()
	names, err := filepath.Glob(filepath.Join(r.node.StateDir, "deletions", "*.delete"))
	if err != nil {
		r.Fatal(err)
	}
	return names
}

// complaints are the lines of the agent's log that an operator should look at.
func (r *rig) complaints() (lines []string) {
	for line := range strings.Lines(r.agent.Log()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestDeletionRecordReplay(t *testing.T) {
	r := newRig(t)
	known, gone, unknown := r.pod(), r.pod(), testutil.NewContainer(t)
	r.agent.Kill(t)
	gone.Close() // with its namespace and the link
	for _, c := range []*testutil.Container{known.Container, gone.Container, unknown} {
		r.cni.MustDel(t, c)
		r.cni.MustDel(t, c)
	}
	if names := r.recorded(); len(names) < 3 {
		t.Errorf("records: %v, want one for each deletion", names)
	}
	r.agent.Start(t)
	r.nothingLeft()
	testutil.Eventually(t, func() error { // the last of them come after it serves
		if names := r.recorded(); len(names) > 0 {
			return &os.PathError{Op: "work off", Path: names[0], Err: os.ErrExist}
		}
		return nil
	})
	for _, line := range r.complaints() {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, unknown.ID) {
			t.Errorf("the agent complains: %s", line)
		}
	}
}

func TestDeletionRecordOfEarlierLife(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	r.agent.Kill(t)
	r.cni.MustDel(t, p.Container)
	kept := map[string][]byte{}
	for _, name := range r.recorded() {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = text
	}
	r.agent.Start(t)
	p = r.add(p.Container) // the container again, as a runtime may after a DEL
	r.agent.Kill(t)
	for name, text := range kept { // as if the agent had died before it removed the record
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.agent.Start(t)
	if err := testutil.Ping(p.Namespace, r.node.IPv4, reach); err != nil || len(r.endpoints()) != 1 {
		t.Errorf("an old record took down a new life: %v, %+v", err, r.endpoints())
	}
}

// A renamed host end goes with its endpoint, with the agent and by the record of a DEL without one.
func TestDELRenamedHostEnd(t *testing.T) {
	r := newRig(t)
	for name, away := range map[string]bool{"with an agent": false, "without an agent": true} {
		p := r.pod()
		index := r.node.Link(t, v1.HostInterfaceName(p.ID, p.IfName)).Attrs().Index
		if err := r.node.Netlink(t).LinkSetName(testutil.LinkAt(index), "renamed"); err != nil {
			t.Fatal(err)
		}
		if away {
			r.agent.Kill(t)
		}
		r.cni.MustDel(t, p.Container)
		if away {
			r.agent.Start(t)
		}
		if r.node.HasLink(t, index) {
			t.Errorf("%s: the renamed link is there", name)
		}
		r.nothingLeft()
	}
}

// bare is the container as it is named in a call, with another namespace or none.
func bare(c *testutil.Container) *testutil.Container {
	return &testutil.Container{Namespace: &testutil.Namespace{}, ID: c.ID, IfName: c.IfName}
}

func TestDELWithoutNamespace(t *testing.T) {
	r := newRig(t)
	config := []byte(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":"` + r.node.Socket + `","stateDir":"` + r.node.StateDir + `"}`)
	for name, away := range map[string]bool{"with an agent": false, "without an agent": true} {
		t.Run(name, func(t *testing.T) {
			p := r.pod()
			if away {
				r.agent.Kill(t)
			}
			for range 2 {
				if _, err := r.cni.Exec("DEL", bare(p.Container), config); err != nil { // CNI_NETNS is empty
					t.Errorf("DEL: %v", err)
				}
			}
			if names := p.LinkNames(t); len(names) != 1 {
				t.Errorf("links in the container: %v", names)
			}
			if away {
				r.agent.Start(t)
			}
			r.nothingLeft()
		})
	}
}

func TestDELLinkGone(t *testing.T) {
	r := newRig(t)
	p := r.pod()
	if err := r.node.Netlink(t).LinkDel(r.node.Link(t, r.endpoints()[0].Host.Name)); err != nil {
		t.Fatal(err)
	}
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}

func TestRestartLinkGone(t *testing.T) {
	r := newRig(t)
	keep, lose := r.pod(), r.pod()
	r.agent.Kill(t)
	lose.Close()
	testutil.Eventually(t, func() error { // the kernel takes its time
		if found := r.inspect().Attachments; len(found) != 2 {
			return fmt.Errorf("attachments %+v", found)
		}
		return nil
	})
	r.agent.Start(t)
	if all := r.endpoints(); len(all) != 1 || all[0].ContainerID != keep.ID || r.status().Restored.Undone != 1 {
		t.Errorf("endpoints %+v, %+v", all, r.status().Restored)
	}
	r.cni.MustDel(t, lose.Container)
	r.cni.MustDel(t, keep.Container)
	r.nothingLeft()
}
