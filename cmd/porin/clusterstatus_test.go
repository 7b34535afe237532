package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cmd/porin/fleet"
)

// TestFaultRows: texts that differ in numbers are one line, and not if they differ in names.
func TestFaultRows(t *testing.T) {
	var out strings.Builder
	faultRows(&out, "Fault:", []clusterFault{
		{Text: "policy shop/web-v1: named port", Nodes: []string{"n1"}},
		{Text: "policy shop/web-v2: named port", Nodes: []string{"n2"}},
		{Text: "dial tcp 192.0.2.1:10250: refused, 3 times", Nodes: []string{"n3"}},
		{Text: "dial tcp 192.0.2.2:10250: refused, 4 times", Nodes: []string{"n4"}},
	})
	want := `Fault:    n1: policy shop/web-v1: named port
Fault:    n2: policy shop/web-v2: named port
Fault:    n3 n4: dial tcp 192.0.2.1:10250: refused, 3 times (and 1 with other numbers: -o json)
`
	if squeezed(out.String()) != squeezed(want) {
		t.Errorf("rows:\n%s", &out)
	}
}

func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

// TestManyFindings: a node has more findings than its status names.
func TestManyFindings(t *testing.T) {
	var faults, notes faultList
	statusFaults("n1", v1.Status{Ready: true, Findings: v1.Findings{Count: 500, First: []v1.Finding{{Kind: "address-orphan"}}}}, &faults, &notes)
	if list := faults.grouped(); len(list) != 2 || !strings.Contains(list[0].Text, "499 more findings") {
		t.Errorf("faults %+v, want one of 499 more", list)
	}
}

// silentCluster is an API server that takes requests and never answers.
type silentCluster struct{ fleet.Cluster }

func (silentCluster) Nodes(ctx context.Context) ([]fleet.Node, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestClusterTimeout: commands wait for the API server as long as --timeout says.
func TestClusterTimeout(t *testing.T) {
	for _, command := range []string{"status", "health", "doctor", "monitor", "connectivity", "sysdump /nosuch"} {
		var text strings.Builder
		code := run(t.Context(), append([]string{"cluster"}, strings.Fields(command+" --timeout 20ms")...), environment{
			out: io.Discard, err: &text, getenv: func(string) string { return "" }, now: time.Now,
			dial: func(_, _, _ string) (fleet.Cluster, *client.Client, func(), error) {
				records := client.New("/nosuch")
				return silentCluster{}, records, records.Close, nil
			},
		})
		if code != exitUnreachable {
			t.Errorf("%s: exit code %d, want %d: %s", command, code, exitUnreachable, &text)
		}
	}
}
