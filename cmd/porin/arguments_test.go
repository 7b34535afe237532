package main

import (
	"slices"
	"testing"
)

// TestArguments: kubectl porin status is porin cluster status.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"/usr/bin/porin", "status"}, []string{"status"}},
		{[]string{"/usr/local/bin/kubectl-porin", "status", "-o", "json"}, []string{"cluster", "status", "-o", "json"}},
		{[]string{"kubectl-porin"}, []string{"cluster"}},
	} {
		if got := arguments(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}
