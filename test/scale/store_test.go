package main

import "testing"

// TestStoreLoad holds the goals that do not depend on the machine.
func TestStoreLoad(t *testing.T) {
	f, err := inStore(t.Context(), measureCluster, measureClaims)
	if err != nil {
		t.Fatal(err)
	}
	for name, most := range map[string]float64{"claim-creates": 2.2, "claim-lists": 0.2, "claim-reads": 6.5, "writes-per-pod": 0} {
		if got, ok := f[name]; !ok || got > most {
			t.Errorf("%s: %v, want at most %v", name, got, most)
		}
	}
	if want := float64(4 * nodes); f["blocks"] != want { // two a family: 110 pods and some ahead
		t.Errorf("%v blocks, want %v", f["blocks"], want)
	}
}
