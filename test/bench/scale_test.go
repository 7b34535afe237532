package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	const claim = "claim of a block, pool half full: "
	r.add(claim+"creates", "porin", f["claim-creates"], "")
	r.add(claim+"lists of the pool", "porin", f["claim-lists"], "")
	r.add(claim+"other reads", "porin", f["claim-reads"]-f["claim-lists"], "")
	r.add("110 pods on each of 5,000 nodes: blocks", "porin", f["blocks"], "")
	r.add("writes to the store of a pod", "porin", f["writes-per-pod"], "")
	r.atMost(claim+"creates", f["claim-creates"], 2, "")
	r.atMost("writes to the store of a pod", f["writes-per-pod"], 0, "")

	f = simulation(t, "Waiting")
	const waiting = "80 nodes wait for a block of a full pool: "
	r.add(waiting+"lists of each at the start", "porin", f["lists-at-start"], "")
	r.add(waiting+"lists of each in 10 minutes", "porin", f["lists-in-ten-minutes"], "")
	r.add(waiting+"creates of each in a minute", "porin", f["creates-a-minute"], "")
	r.atMost(waiting+"lists of each at the start", f["lists-at-start"], 1, "")
	r.atMost(waiting+"lists of each in 10 minutes", f["lists-in-ten-minutes"], 1, "")

	f = simulation(t, "Idle")
	r.add("5,000 idle nodes: writes in an hour", "porin", f["writes-an-hour"], "")
	r.add("5,000 idle nodes: reads a second", "porin", f["reads-a-second"], "")
	r.atMost("5,000 idle nodes: writes in an hour", f["writes-an-hour"], 0, "")
}

// scale runs the program of that name, of the module of the agent, which this one has not the libraries of.
func scale(t *testing.T, what string) (figures map[string]float64) {
	t.Helper()
	cmd := exec.Command(filepath.Join(testutil.Build(t), "scale"), what)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &figures)
	}
	if err != nil {
		t.Fatalf("scale %s (run make bench): %v\n%s", what, err, out)
	}
	return figures
}

// simulation runs one of the tests of that program, in which hours pass at once.
func simulation(t *testing.T, name string) (figures map[string]float64) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command(filepath.Join(testutil.Build(t), "scale.test"), "-test.run", "^Test"+name+"Nodes$", "-figures", dir).CombinedOutput()
	if err != nil {
		t.Errorf("scale.test %s (run make bench): %v\n%s", name, err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, strings.ToLower(name)+".json"))
	if err == nil {
		err = json.Unmarshal(text, &figures)
	}
	if err != nil {
		t.Fatal(err)
	}
	return figures
}
