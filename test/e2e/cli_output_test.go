package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// decoded runs the command with -o json, which must succeed.
func decoded[T any](r *rig, args ...string) (value T) {
	r.Helper()
	done := r.cli(append(args, "-o", "json")...)
	if done.code != 0 || done.err != "" {
		r.Fatalf("porin %v: exit code %d: %s", args, done.code, done.err)
	}
	if err := json.Unmarshal([]byte(done.out), &value); err != nil {
		r.Fatalf("porin %v printed %q: %v", args, done.out, err)
	}
	return value
}

// lines runs the command, which must succeed, and returns each line's words.
func (r *rig) lines(args ...string) (lines [][]string) {
	r.Helper()
	done := r.cli(args...)
	if done.code != 0 || done.err != "" {
		r.Fatalf("porin %v: exit code %d: %s", args, done.code, done.err)
	}
	for line := range strings.Lines(done.out) {
		lines = append(lines, strings.Fields(line))
	}
	return lines
}

// named is an attached container that the runtime has told the name of.
func (r *rig) named(namespace, name string) pod {
	r.Helper()
	c := testutil.NewContainer(r)
	c.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", namespace}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "u-" + name}}
	return r.add(c)
}

func TestCommandLineJSON(t *testing.T) {
	r := newRig(t)
	r.named("demo", "web")
	r.named("demo", "db")
	quiet := cmpopts.IgnoreFields(v1.Endpoint{}, "Traffic") // a pod's stack speaks when it likes
	same := cmp.Comparer(func(a, b fmt.Stringer) bool { return a.String() == b.String() })
	if diff := cmp.Diff(r.endpoints(), decoded[[]v1.Endpoint](r, "endpoint", "list"), quiet, same); diff != "" {
		t.Errorf("endpoint list (-API +porin):\n%s", diff)
	}
	if diff := cmp.Diff(r.usage(), decoded[v1.IPAM](r, "ipam", "list"), same); diff != "" {
		t.Errorf("ipam list (-API +porin):\n%s", diff)
	}
	if diff := cmp.Diff(r.status(), decoded[v1.Status](r, "status"), same); diff != "" {
		t.Errorf("status (-API +porin):\n%s", diff)
	}
	if none := decoded[[]v1.Endpoint](r, "endpoint", "list", "--network", "another"); none == nil || len(none) != 0 {
		t.Errorf("endpoints of a network that is not: %v, want []", none)
	}
}

func TestCommandLineTables(t *testing.T) {
	r := newRig(t)
	web := r.named("demo", "web")
	ep := r.endpoints()[0]
	list := r.lines("endpoint", "list")
	want := [][]string{
		{"ID", "STATE", "POD", "CONTAINER", "INTERFACE", "IPV4", "IPV6", "AGE"},
		{fmt.Sprint(ep.ID), "ready", "demo/web", web.ID[:12], "eth0", web.ipv4.String(), web.ipv6.String(), "0s"},
	}
	list[1][7] = "0s" // on a busy machine
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("endpoint list (-want +got):\n%s", diff)
	}
	for command, words := range map[string][]string{
		"status":        {"node1", fmt.Sprintf("pid %d", r.agent.PID()), "1 ready", "from_pod", "to_pod"},
		"endpoint get ": {"demo/web", web.ID, web.ipv4.String(), web.ipv6.String(), ep.Host.Name, ep.Container.MAC.String()},
		"ipam list":     {"default", r.node.PodIPv4.String(), web.ipv4.String(), "demo/web", "eth0", web.ID[:12]},
		"events":        {"endpoint-created", "demo/web", "ledger-commit"},
	} {
		args := strings.Fields(command)
		if command == "endpoint get " {
			args = append(args, fmt.Sprint(ep.ID))
		}
		done := r.cli(args...)
		for _, word := range words {
			if done.code != 0 || !strings.Contains(done.out, word) {
				t.Errorf("porin %s: exit code %d, want %q in\n%s%s", command, done.code, word, done.out, done.err)
			}
		}
	}
}

func TestEndpointReferences(t *testing.T) {
	r := newRig(t)
	web := r.named("demo", "web")
	r.named("demo", "db")
	want := decoded[v1.Endpoint](r, "endpoint", "get", "container-id:"+web.ID)
	if want.ContainerID != web.ID {
		t.Fatalf("got %+v", want)
	}
	refs := []string{
		fmt.Sprint(want.ID), "cni-attachment-id:" + web.ID + ":eth0", "pod-name:demo/web",
		"ipv4:" + web.ipv4.String(), "ipv6:" + web.ipv6.String(),
	}
	for _, ref := range refs {
		if got := decoded[v1.Endpoint](r, "endpoint", "get", ref); got.ID != want.ID {
			t.Errorf("%s is endpoint %d, want %d", ref, got.ID, want.ID)
		}
	}
	for _, ref := range refs[2:] { // an endpoint that is deleted by one name is gone by all
		if done := r.cli("endpoint", "delete", ref); ref == refs[2] && done.code != 0 || ref != refs[2] && done.code != 3 {
			t.Errorf("delete %s: exit code %d: %s%s", ref, done.code, done.out, done.err)
		}
	}
	if all := r.endpoints(); len(all) != 1 {
		t.Errorf("endpoints: %+v", all)
	}
}
