package endpointmanagertest_test

import (
	"errors"
	"os"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestOpenNamespace(t *testing.T) {
	ns := testutil.NetNS(t)
	namespace := endpointmanagertest.OpenNamespace(t, ns.Path())
	want, err := netns.Cookie(ns.FD())
	if err != nil || namespace.Cookie() != want {
		t.Errorf("cookie %d, error %v, want %d", namespace.Cookie(), err, want)
	}
	links, err := namespace.Netlink().LinkList()
	if err != nil || len(links) != 1 || links[0].Attrs().Name != "lo" {
		t.Errorf("links %v, error %v, want lo alone", links, err)
	}
}

func TestOpenNamespaceInvalid(t *testing.T) {
	for path, want := range map[string]error{
		os.DevNull: netns.ErrNotNetNS, "/proc/self/ns/mnt": netns.ErrNotNetNS, "/proc/thread-self/ns/net": netns.ErrOwn,
	} {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := endpoint.OpenNamespace(file); !errors.Is(err, want) {
			t.Errorf("%s: error %v, want %v", path, err, want)
		}
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is left open", path)
		}
	}
}
