package redirect_test

import (
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestEarlyDemuxIsSet removes the way into the proxy: the setting is the kernel's default then. Without a way it stays.
func TestEarlyDemuxIsSet(t *testing.T) {
	testutil.Root(t)
	for name, c := range map[string]struct {
		meanwhile func(*testing.T, *world)
		reopened  bool
	}{
		"nothing happens":       {func(*testing.T, *world) {}, true},
		"the device is removed": {func(t *testing.T, w *world) { w.shell(t, "ip link del porin-l7") }, true},
		"another process": {func(t *testing.T, w *world) {
			must(t, w.redirect.Close())
			w.redirect = w.newRedirect(t)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			setting := func() string { return strings.TrimSpace(w.shell(t, "cat /proc/sys/net/ipv4/tcp_early_demux")) }
			if before := setting(); before != "1" {
				t.Fatalf("the setting of a new namespace is %s", before)
			}
			w.open(t, w.redirect)
			if is := setting(); is != "0" {
				t.Fatalf("with a way into the proxy: %s", is)
			}
			c.meanwhile(t, w)
			if c.reopened {
				w.open(t, w.redirect)
			}
			must(t, w.node.Do(w.redirect.Remove))
			if is := setting(); is != "1" {
				t.Errorf("it is %s when everything is removed", is)
			}
			w.shell(t, "echo 0 > /proc/sys/net/ipv4/tcp_early_demux")
			must(t, w.node.Do(w.redirect.Remove))
			if is := setting(); is != "0" {
				t.Errorf("it is %s when nothing was removed", is)
			}
		})
	}
}
