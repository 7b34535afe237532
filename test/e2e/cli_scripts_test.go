package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
)

func TestExitCodes(t *testing.T) {
	r := newRig(t)
	for command, code := range map[string]int{
		"status":                               0,
		"endpoint delete container-id:unknown": 0,
		"--help":                               0,
		"":                                     0,
		"nonsense":                             2,
		"endpoint list -o yaml":                2,
		"endpoint get":                         2,
		"endpoint get ipv4:nonsense":           2,
		"endpoint get 4242":                    3,
		"endpoint delete pod-name:demo/none":   3,
	} {
		done := r.cli(strings.Fields(command)...)
		if done.code != code || code != 0 && !done.one("porin: ") {
			t.Errorf("porin %s: exit code %d, want %d; it printed %q and %q", command, done.code, code, done.out, done.err)
		}
	}
	r.agent.Kill(t)
	for _, gone := range []string{"the socket is there", "the socket is not there"} {
		for _, command := range []string{"status", "endpoint list", "endpoint delete 1", "ipam list", "events", "events --follow"} {
			if done := r.cli(strings.Fields(command)...); done.code != 4 || !done.one(r.node.Socket) {
				t.Errorf("%s: porin %s: exit code %d: %s", gone, command, done.code, done.err)
			}
		}
		_ = os.Remove(r.node.Socket)
	}
}

func TestBPFCommand(t *testing.T) {
	r := newRig(t)
	r.pod()
	r.pod()
	rounded := cmpopts.IgnoreFields(loader.PinnedProgram{}, "Loaded") // to a second
	agrees := func(when string) {
		t.Helper()
		found := decoded[datapath.Inspection](r, "bpf", "--bpf-root", r.node.BPFRoot)
		if diff := cmp.Diff(r.inspect(), found, rounded); diff != "" {
			t.Errorf("%s (-kernel +porin):\n%s", when, diff)
		}
		if len(found.Programs) != 4 || len(found.Maps) != len(bpf.MapNames()) || len(found.Attachments) != 4 {
			t.Errorf("%s: %+v", when, found)
		}
	}
	if found := decoded[datapath.Inspection](r, "bpf"); len(found.Programs) != 4 {
		t.Errorf("with the agent's own folder: %+v", found)
	}
	agrees("with an agent")
	status, ids := r.status().Datapath, map[uint32]string{}
	for _, p := range r.inspect().Programs {
		if ids[p.ID] = p.Name; p.Digest != status.Digest {
			t.Errorf("digest of %s: %s, and the agent says %s", p.Name, p.Digest, status.Digest)
		}
	}
	for _, p := range status.Programs {
		if ids[p.ID] != p.Name {
			t.Errorf("the agent says that %d is %s; pinned are %v", p.ID, p.Name, ids)
		}
	}
	for _, a := range r.inspect().Attachments {
		if want := map[string]string{"ingress": "from_pod", "egress": "to_pod"}[a.Direction]; ids[a.ProgramID] != want || a.Name != want {
			t.Errorf("%s of %s is %s, program %d", a.Direction, a.IfName, a.Name, a.ProgramID)
		}
	}
	r.agent.Kill(t)
	agrees("without an agent")
}
