package records

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/cluster"
)

func TestShape(t *testing.T) {
	type inner struct {
		Addr netip.Addr `json:"addr"`
	}
	type now struct {
		Items []inner        `json:"items"`
		Sets  map[string]int `json:"sets"`
		At    string         `json:"-"`
	}
	type more struct {
		Addr netip.Addr `json:"addr"`
		Port int        `json:"port"`
	}
	type sameFields struct {
		Items []inner        `json:"items"`
		Sets  map[string]int `json:"sets"`
		Other int            `json:"-"`
	}
	type later struct {
		Items []more         `json:"items"`
		Sets  map[string]int `json:"sets"`
	}
	if shapeOf[now]() != shapeOf[sameFields]() {
		t.Error("a field that JSON does not have changes the shape")
	}
	if shapeOf[now]() == shapeOf[later]() || shapeOf[cluster.NodeNetwork]() == shapeOf[cluster.EndpointGroup]() {
		t.Error("types with other fields have one shape")
	}
}
