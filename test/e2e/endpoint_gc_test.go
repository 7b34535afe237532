package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// forgetful is a runtime that has lost its cache: otherwise libcni itself detaches what is not valid, one by one.
func (r *rig) forgetful(plugin map[string]any) *testutil.CNI {
	r.Helper()
	if err := os.RemoveAll(filepath.Join(r.node.Dir, "cni-cache")); err != nil {
		r.Fatal(err)
	}
	return r.node.NewCNI(r, testutil.CNIConfig{Bin: testutil.Build(r), Plugin: plugin})
}

// attached compares the containers that have an endpoint.
func (r *rig) attached(when string, want ...*testutil.Container) {
	r.Helper()
	is, should := map[string]bool{}, map[string]bool{}
	for _, ep := range r.endpoints() {
		is[ep.ContainerID] = true
	}
	for _, c := range want {
		should[c.ID] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(should)), slices.Sorted(maps.Keys(is))); diff != "" {
		r.Errorf("%s: attached (-want +got):\n%s", when, diff)
	}
}

func TestGCMost(t *testing.T) {
	r := newRig(t)
	other := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t), Network: "other"})
	of := testutil.NewContainer(t)
	other.MustAdd(t, of)
	a, b, c, d := r.pod().Container, r.pod().Container, r.pod().Container, r.pod().Container
	runtime := r.forgetful(nil)
	err := runtime.GC(a)
	failedAs(t, err, codeTryAgainLater)
	failedWith(t, err, `3 of the 4 endpoints of network "porin" are not valid`)
	r.attached("after the first call", a, b, c, d, of)
	young := r.pod().Container
	if err := r.forgetful(nil).GC(a); err != nil {
		t.Errorf("the second call: %v", err)
	}
	r.attached("after the second call", a, young, of)
	if err := r.forgetful(nil).GC(a); err != nil { // half of them, which is not too many
		t.Errorf("one more call: %v", err)
	}
	r.attached("after one more call", a, of)
}

func TestGCConcurrentADD(t *testing.T) {
	r := newRig(t)
	keep, lose := r.pod().Container, r.pod().Container
	_ = r.forgetful(nil)
	gc := r.hold(nil, func(cni *testutil.CNI) error { return cni.GC(keep) })
	young := r.pod().Container
	if err := gc.goOn(); err != nil {
		t.Errorf("GC: %v", err)
	}
	r.attached("after it", keep, young)
	r.noLinks(lose)
}

func TestGCByTheCommandLine(t *testing.T) {
	r := newRig(t)
	keep, lose := r.pod().Container, r.pod().Container
	args := []string{"gc", "--network", "porin", "--valid", keep.ID + ":eth0"}
	if result := decoded[v1.GCResult](r, append(args, "--dry-run")...); len(result.Stale) != 1 || result.Deleted != 0 {
		t.Errorf("a dry run: %+v", result)
	}
	r.attached("after a dry run", keep, lose)
	if result := decoded[v1.GCResult](r, args...); result.Deleted != 1 || result.Stale[0] != lose.ID+":eth0" {
		t.Errorf("porin gc: %+v", result)
	}
	r.attached("after it", keep)
	if done := r.cli("gc", "--network", "porin", "--valid="); done.code != 1 || !strings.Contains(done.err, "Call again") {
		t.Errorf("nothing valid: exit code %d: %s%s", done.code, done.out, done.err)
	}
	r.attached("after a call that was withheld", keep)
}
