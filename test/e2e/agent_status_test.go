package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// lacks checks that the command line names the resource until it is relieved, and that STATUS succeeds all the same: a
// failure makes the node NotReady, and its pods are evicted.
func (r *rig) lacks(resource, reason string, relieve func()) {
	r.Helper()
	if err := r.cni.Status(); err != nil {
		r.Errorf("STATUS without %s: %v", resource, err)
	}
	if done := r.cli("status"); done.code != 0 || !strings.Contains(done.out, "Lacking:") || !strings.Contains(done.out, reason) {
		r.Errorf("porin status: exit code %d\n%s", done.code, done.out)
	}
	relieve()
	testutil.Eventually(r, r.cni.Status)
}

func TestStatusFullPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/29,fd00:9::/64", "--ipam-quarantine=0s")
	last := r.pod()
	for range 4 {
		if err := r.cni.Status(); err != nil {
			t.Errorf("there are addresses left, and STATUS: %v", err)
		}
		last = r.pod()
	}
	r.lacks("addresses/default/ipv4", "0 of 5 left", func() { r.cni.MustDel(t, last.Container) })
}

func TestStatusFullMaps(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--max-endpoints=2")
	r.pod()
	if err := r.cni.Status(); err != nil {
		t.Errorf("there is room for another, and STATUS: %v", err)
	}
	last := r.pod()
	r.lacks("datapath-maps", "0 of 2 left", func() { r.cni.MustDel(t, last.Container) })
}

func TestStatusLedgerNotWritable(t *testing.T) {
	t.Parallel()
	testutil.Root(t)
	node := testutil.NewNode(t)
	disk := smallDisk(t, 4<<20)
	node.StateDir = filepath.Join(disk, "state")
	r := rigOn(t, node)
	if err := r.cni.Status(); err != nil {
		t.Errorf("the disk is empty, and STATUS: %v", err)
	}
	filler := filepath.Join(disk, "filler")
	fill(t, filler)
	if err := os.Truncate(filler, 3600<<10); err != nil {
		t.Fatal(err)
	}
	p := r.pod() // succeeds yet
	var err error
	testutil.Eventually(t, func() error {
		if err = r.cni.Status(); err == nil {
			return errors.New("STATUS succeeds")
		}
		return nil
	})
	failedAs(t, err, codeNotAvailable)
	failedWith(t, err, "ledger: ")
	failedWith(t, err, "free space there")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, r.cni.Status)
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}

func TestStatusPendingDeletions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := testutil.NewContainer(t)
	r.agent.Kill(t)
	r.cni.MustDel(t, c)
	record := r.recorded()[0]
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	r.agent.Start(t)
	testutil.Eventually(t, r.cni.Status)
	if err := os.WriteFile(record, text, 0o600); err != nil { // as if the agent could not have done it
		t.Fatal(err)
	}
	r.lacks("deletion-records", "1 deletions that were asked for without an agent are not done", r.agrees) // as the doctor sees to it
	if left := r.recorded(); len(left) > 0 {
		t.Errorf("records: %v", left)
	}
}

func TestStatusResources(t *testing.T) {
	r := newRig(t, "--metrics-address="+metricsAddress)
	r.pod()
	r.pod()
	resources := r.status().Resources
	for _, name := range []string{"addresses/default/ipv4", "addresses/default/ipv6", "datapath-maps", "endpoint-numbers"} {
		i := slices.IndexFunc(resources, func(res v1.Resource) bool { return res.Name == name })
		if i < 0 || resources[i].Used != 2 || resources[i].Capacity < 200 || !resources[i].Available {
			t.Errorf("%s is not among %+v, or other than 2 in use", name, resources)
		}
	}
	r.expect(map[string]float64{
		`porin_resource_available{resource="ledger"}`: 1, `porin_resource_available{resource="deletion-records"}`: 1,
	})
}
