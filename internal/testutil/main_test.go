package testutil_test

import (
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks(), testutil.HostUntouched()) }

func TestNamespaceIsolation(t *testing.T) {
	a, b := testutil.NetNS(t), testutil.NetNS(t)
	for _, ns := range []*testutil.Namespace{a, b} {
		links, err := ns.Links()
		if err != nil {
			t.Fatal(err)
		}
		if len(links) != 1 || links[0].Attrs().Name != "lo" || !testutil.IsUp(links[0]) {
			t.Errorf("links of a fresh namespace = %+v, want lo alone, and up", links)
		}
	}
}
