package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

func TestUnfinishedDeletion(t *testing.T) {
	t.Parallel()
	testutil.Root(t)
	node := testutil.NewNode(t)
	disk := smallDisk(t, 256<<10)
	node.StateDir = filepath.Join(disk, "state")
	r := rigOn(t, node, "--doctor-interval=0s", "--metrics-address="+metricsAddress)
	var all []*testutil.Container
	for range 8 {
		all = append(all, r.pod().Container)
	}
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	ofDisk := func(f v1.Finding) bool { return f.Kind == "deletion-unfinished" }
	var found []v1.Finding
	for _, c := range all { // the ledger's file has pages to spare for a while
		r.cni.MustDel(t, c) // the container is cut off all the same, and the runtime need not know
		r.noLinks(c)
		if found = r.answered().Findings; slices.ContainsFunc(found, ofDisk) {
			break
		}
	}
	if !slices.ContainsFunc(found, ofDisk) {
		t.Fatalf("found %+v", found)
	}
	name := findingsGauge("deletion-unfinished", "endpointmanager")
	if n := r.metrics()[name]; n < 1 {
		t.Errorf("%s is %v", name, n)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		if found := r.answered().Findings; len(found) > 0 {
			return fmt.Errorf("found %+v", found)
		}
		return nil
	})
	r.expect(map[string]float64{name: 0})
	for _, c := range all {
		r.cni.MustDel(t, c)
	}
	r.nothingLeft()
}
