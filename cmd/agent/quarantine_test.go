package main

import (
	"testing"
	"time"
)

// TestQuarantineRestart: an address may have to rest for twenty minutes, and what a restarted
// agent knows of a release is its tombstone.
func TestQuarantineRestart(t *testing.T) {
	for quarantine, valid := range map[time.Duration]bool{20 * time.Minute: true, 20*time.Minute + 1: false} {
		cfg := DefaultConfig()
		cfg.NodeName, cfg.IPAM.PodCIDRs, cfg.IPAM.Quarantine = "node", []string{"10.0.0.0/24"}, quarantine
		if err := cfg.Validate(); (err == nil) != valid {
			t.Errorf("a quarantine of %s: %v", quarantine, err)
		}
		if ttl := cfg.EndpointManager.TombstoneTTL; valid && ttl < quarantine {
			t.Errorf("a deletion is remembered for %s, want %s", ttl, quarantine)
		}
	}
}
