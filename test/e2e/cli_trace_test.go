package e2e

import (
	"slices"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

func phasesOf(t v1.Trace) (names []string) {
	for _, p := range t.Phases {
		names = append(names, p.Name)
	}
	return names
}

func TestTrace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.named("demo", "web")
	other := r.pod()
	r.cni.MustDel(t, p.Container)
	for _, ref := range []string{"demo/web", p.ID, p.ID[:12]} {
		list := decoded[[]v1.Trace](r, "trace", ref)
		if len(list) != 2 || list[0].Operation != "del" || list[1].Operation != "add" || list[1].Pod != "demo/web" {
			t.Errorf("porin trace %s: %+v", ref, list)
			continue
		}
		want := []string{"plugin", "queue", "admission", "ledger-intent", "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath", "ledger-commit"}
		if got := phasesOf(list[1]); !slices.Equal(got, want) {
			t.Errorf("the phases of the ADD: %v", got)
		}
		if got := phasesOf(list[0]); !slices.Contains(got, "datapath") || !slices.Contains(got, "ledger-commit") {
			t.Errorf("the phases of the DEL: %v", got)
		}
	}
	if list := decoded[[]v1.Trace](r, "trace"); len(list) != 3 || list[1].Endpoint != other.ID+":eth0" {
		t.Errorf("porin trace: %+v", list)
	}
	if done := r.cli("trace", "demo/web"); done.code != 0 || !strings.Contains(done.out, "ledger-commit") || !strings.Contains(done.out, "datapath") {
		t.Errorf("porin trace demo/web: exit code %d: %s%s", done.code, done.out, done.err)
	}
	if done := r.cli("trace", "demo/none"); done.code != 3 {
		t.Errorf("porin trace of the unknown: exit code %d: %s", done.code, done.err)
	}
}

func TestTraceFailedADD(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/30")
	r.pod()
	c := testutil.NewContainer(t)
	_, err := r.cni.Add(c)
	failedWith(t, err, " took ")
	failedWith(t, err, "(after ")
	list := decoded[[]v1.Trace](r, "trace", c.ID)
	if len(list) != 1 || !strings.Contains(list[0].Error, "no free address") || !slices.Contains(phasesOf(list[0]), "undo") {
		t.Errorf("porin trace: %+v", list)
	}
}
