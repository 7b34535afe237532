package policy

import (
	"sync"
	"testing"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

func examine(t *testing.T, n *node) []doctor.Finding {
	t.Helper()
	findings, err := newChecker(n.queue).Examine(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// damage gives endpoints of the fake kernel a table that does not exist.
func (k *fakeKernel) damage() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tables[77] = fakeTable{any: []engine.Row{{Decision: engine.Decision{Allowed: true}}}}
	k.note(k.tables[77].any)
	for id, ep := range k.endpoints {
		ep.tables[model.Ingress] = 77
		k.endpoints[id] = ep
	}
}

func TestDoctorWritesAnew(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	if found := examine(t, n); len(found) > 0 {
		t.Errorf("without damage: %+v", found)
	}
	n.kernel.damage()
	n.wants(t, other, web, true, "damaged")
	found := examine(t, n)
	if len(found) != 2 || found[0].Kind != entryDiffers || found[0].Detail != found[0].Subject+": another table" {
		t.Fatalf("found %+v, want two entries that differ", found)
	}
	times := n.kernel.times()
	for _, f := range found {
		if err := f.Repair(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n.kernel.times() != times+1 {
		t.Errorf("written %d times for two findings, want once", n.kernel.times()-times)
	}
	if left := examine(t, n); len(left) > 0 {
		t.Errorf("after the repair: %+v", left)
	}
	n.wants(t, other, web, false, "repaired")
}

// TestDoctorBoundsFindings has more entries differ than anybody wants to read.
func TestDoctorBoundsFindings(t *testing.T) {
	n := servingNode(t, "")
	for i := range 30 {
		n.attach(t, pod(i+1, "web"))
	}
	n.kernel.damage()
	found := examine(t, n)
	if len(found) != maxListed+1 || found[maxListed].Detail != "further entries of map policies: 20 more" {
		t.Errorf("%d findings, the last one %+v", len(found), found[len(found)-1])
	}
}

// TestDoctorWhileRefused makes a change that cannot be written: status shows it, and the doctor does not report damage.
func TestDoctorWhileRefused(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.kernel.refuseWith(errKernel)
	if err := n.step.Detach(t.Context(), web, endpoint.DeleteConfig{}); err == nil {
		t.Fatal("detached")
	}
	n.kernel.damage()
	if found := examine(t, n); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
}

// TestDoctorDuringChanges compares while endpoints come and go: a write under way is no finding.
func TestDoctorDuringChanges(t *testing.T) {
	n := servingNode(t, "")
	n.put(t, toWebFrom("client"))
	var changes sync.WaitGroup
	done := make(chan struct{})
	for i := range 4 {
		changes.Go(func() {
			for range 50 {
				ep := pod(i+1, "web")
				if _, err := n.step.Attach(t.Context(), ep, nil); err != nil {
					t.Error(err)
				}
				if err := n.step.Detach(t.Context(), ep, endpoint.DeleteConfig{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { changes.Wait(); close(done) }()
	for examinations := 0; ; examinations++ {
		if found := examine(t, n); len(found) > 0 {
			t.Fatalf("found %+v", found)
		}
		select {
		case <-done:
			if examinations == 0 {
				t.Error("nothing was compared")
			}
			return
		default:
		}
	}
}
