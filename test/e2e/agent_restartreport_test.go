package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// reportOf are the outcome and reasons of a container in the report of the agent's start.
func reportOf(restored v1.Restored, c *testutil.Container) string {
	for _, e := range restored.Reasons {
		if e.Endpoint == c.ID+":eth0" {
			return e.Outcome + ": " + strings.Join(e.Reasons, "; ")
		}
	}
	return ""
}

func TestRestartReport(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	whole, unrouted, deleted, lost := r.pod(), r.pod(), r.pod(), r.pod()
	r.agent.Kill(t)
	host, stray := r.host(unrouted.Container), netip.MustParseAddr("10.200.0.1")
	handle := r.node.Netlink(t)
	err := errors.Join(
		handle.RouteDel(testutil.HostRoute(host.Index, unrouted.ipv6, 0)),
		handle.LinkDel(r.node.HostLink(t, lost.Container)),
		handle.RouteAdd(testutil.HostRoute(r.host(whole.Container).Index, stray, testutil.RouteProtocol)),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.cni.MustDel(t, deleted.Container)
	r.agent.Start(t)

	restored := r.status().Restored
	if restored.Adopted != 1 || restored.Replaced != 1 || restored.Undone != 2 || restored.Duration <= 0 {
		t.Errorf("restored %+v", restored)
	}
	want := map[string]string{
		"whole":    "",
		"unrouted": fmt.Sprintf("replaced: route to %s: missing", unrouted.ipv6),
		"deleted":  "undone: it was deleted while no agent ran",
	}
	got := map[string]string{
		"whole": reportOf(restored, whole.Container), "unrouted": reportOf(restored, unrouted.Container),
		"deleted": reportOf(restored, deleted.Container),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if why := reportOf(restored, lost.Container); !strings.HasPrefix(why, "undone: ") || !strings.Contains(why, "no such host interface") {
		t.Errorf("lost: %q", why)
	}
	removed := fmt.Sprintf("route to %s/32 by link %d", stray, r.host(whole.Container).Index)
	if !slices.Contains(restored.Removed, removed) {
		t.Errorf("removed %q, want %q among them", restored.Removed, removed)
	}
	out := r.cli("status").out
	for _, words := range []string{"1 taken over, 1 replaced, 2 undone, in ", "Replaced:", want["unrouted"][len("replaced: "):], "Undone:", "while no agent ran", "Removed:", removed} {
		if !strings.Contains(out, words) {
			t.Errorf("porin status lacks %q:\n%s", words, out)
		}
	}
	r.reached("unrouted", unrouted)
}

func TestRestartReportUndisturbed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pod()
	r.pod()
	for range 2 {
		r.agent.Restart(t)
		if restored := r.status().Restored; restored.Adopted != 2 || len(restored.Reasons)+len(restored.Removed) > 0 {
			t.Errorf("restored %+v", restored)
		}
	}
}
