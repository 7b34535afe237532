package e2e

import (
	"testing"
	"time"

	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/testutil"
)

// TestTwoAgentsOfOneNameGiveOutNothingTwice: the second one refuses, and says why. The first one goes on, and its next life
// waits for no lease.
func TestTwoAgentsOfOneNameGiveOutNothingTwice(t *testing.T) {
	etcd := etcdtest.Start(t, nil)
	first := onEtcd(t, etcd, "--node-name=same")
	p := first.pod()
	second := onEtcd(t, etcd, "--node-name=same")
	began := time.Now()
	_, err := second.cni.Add(testutil.NewContainer(t))
	t.Logf("ADD at the second one, after %s: %v", time.Since(began).Round(time.Millisecond), err)
	failedAs(t, err, codeConflict)
	failedWith(t, err, "another agent has this node's name, same")
	err = second.cni.Status()
	failedAs(t, err, codeNotAvailable)
	failedWith(t, err, "node-name (another agent has this node's name, same")

	if found := namesOf(second.examined().Findings); found != "node-name-taken" {
		t.Errorf("the doctor finds %q", found)
	}

	first.agent.Restart(t)
	t.Logf("the first one is ready after %s", first.agent.Started)
	if q := first.pod(); q.ipv4 == p.ipv4 {
		t.Errorf("%s was given out twice", q.ipv4)
	}
	if err := first.cni.Status(); err != nil {
		t.Error(err)
	}
	first.agrees()
}
