package main

import (
	"strings"
	"testing"

	"porin.dev/porin/cells/ipam"
)

func TestNodeLabels(t *testing.T) {
	cfg := testConfig(t)
	cfg.NodeLabels = map[string]string{"zone": "a"}
	if err := cfg.Validate(); err != nil || cfg.multiPool().Labels["zone"] != "a" {
		t.Errorf("%v: the blocks have labels %v", err, cfg.multiPool().Labels)
	}
	cfg.IPAM.Mode, cfg.IPAM.PodCIDRs = ipam.ModePodCIDR, []string{"10.0.0.0/24"}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "node-labels: of no effect in mode pod-cidr") {
		t.Errorf("error %v", err)
	}
}
