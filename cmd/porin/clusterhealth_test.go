package main

import (
	"fmt"
	"reflect"
	"testing"
)

// TestGroupPaths has an unreachable node, a node that reaches none of 1,000 others, and a pair.
func TestGroupPaths(t *testing.T) {
	details, all := map[path]string{{"n1", "n2", "policy"}: "pair"}, []string{}
	for i := range 1000 {
		other := fmt.Sprintf("other%03d", i)
		all = append(all, other)
		details[path{other, "gone", "node"}] = "off"
		details[path{"mute", other, "tunnel"}] = "port"
	}
	want := []failingPaths{
		{From: all, To: []string{"gone"}, Part: "node", Detail: "off"},
		{From: []string{"mute"}, To: all, Part: "tunnel", Detail: "port"},
		{From: []string{"n1"}, To: []string{"n2"}, Part: "policy", Detail: "pair"},
	}
	if got := groupPaths(details); !reflect.DeepEqual(got, want) {
		t.Errorf("%d groups of 2,001 paths: %.300v", len(got), got)
	}
}
