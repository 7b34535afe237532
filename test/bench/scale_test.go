package bench

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// addresses measures allocations inside an own block.
func addresses(t *testing.T, r *report) {
	f := scale(t, "ipam")
	for _, fill := range []string{"1", "99"} {
		measure := "allocate + release, block " + fill + " % full"
		r.add(measure, "porin", f["ns-"+fill]/1e3, "us")
		r.add(measure+", allocations", "porin", f["allocs-"+fill], "")
		r.atMost(measure, f["ns-"+fill]/1e3, 1, " us")
		r.atMost(measure+", allocations on the heap", f["allocs-"+fill], 0, "")
	}
}

// cluster measures what the blocks of a cluster cost the store.
func cluster(t *testing.T, r *report) {
	f := scale(t, "store")
	const all = "110 pods on each of 5,000 nodes: "
	r.add("calls of a claim to etcd", "porin", f["round-trips"], "")
	r.add(all+"objects", "porin", f["objects"], "")
	r.add(all+"of these blocks", "porin", f["blocks"], "")
	r.add(all+"keys and values", "porin", f["bytes"]/(1<<20), "MiB")
	r.add("largest block, key and value", "porin", f["bytes-per-block"], "B")
	r.add("writes to etcd of a pod", "porin", f["writes-per-pod"], "")
	r.atMost("calls of a claim to etcd", f["round-trips"], 2, "")
	r.atMost("largest block in etcd", f["bytes-per-block"], 1024, " B")
	r.atMost("writes to etcd of a pod", f["writes-per-pod"], 0, "")
}

// scale runs the program of that name, of the module of the agent, which this one has not the libraries of.
func scale(t *testing.T, what string) (figures map[string]float64) {
	t.Helper()
	cmd := exec.Command(filepath.Join(testutil.Build(t), "scale"), what)
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &figures)
	}
	if err != nil {
		t.Fatalf("scale %s (run make bench): %v\n%s", what, err, out)
	}
	return figures
}
