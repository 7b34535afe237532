package allocator_test

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

func TestTheHandleOfAnAttachment(t *testing.T) {
	rows := []struct{ network, container, ifname, want string }{
		{"porin", "c1", "eth0", "porin.c1.eth0"},
		{"", "c1", "eth0", "-.c1.eth0"},
		{"-", "c1", "eth0", "%2D.c1.eth0"},
		{"a.b", "c", "eth0", "a%2Eb.c.eth0"},
		{"a", "b.c", "eth0", "a.b%2Ec.eth0"},
		{"a", "b", "c.eth0", "a.b.c%2Eeth0"},
		{"a%2Eb", "c", "eth0", "a%252Eb.c.eth0"},
	}
	seen := map[allocator.Handle]bool{}
	for _, row := range rows {
		a := endpoint.Attachment{ContainerID: row.container, IfName: row.ifname}
		h := allocator.NewHandle(row.network, a)
		if string(h) != row.want || seen[h] {
			t.Errorf("%s of %q is %q, want %q", a, row.network, string(h), row.want)
		}
		seen[h] = true
		if back, ok := h.Attachment(); !ok || back != a || h.String() != a.String() {
			t.Errorf("%q is read as %s, %v", string(h), back, ok)
		}
	}
	for _, other := range []allocator.Handle{"", "x", "default.web", "a.b.c.d", ".c1.eth0", "a..eth0", "a.c1.lo", "a.c1.", "a.c/1.eth0"} {
		if a, ok := other.Attachment(); ok {
			t.Errorf("%q is read as %s", string(other), a)
		}
	}
	h := allocator.NewHandle("", endpoint.Unnamed("link/48"))
	if _, ok := h.Attachment(); ok || !h.Unnamed() || h.String() != "link/48" || allocator.Handle("-.c1.eth0").Unnamed() {
		t.Errorf("the handle of a host end that does not say whose it is: %q, unnamed %v", h, h.Unnamed())
	}
	if h := allocator.PodHandle("porin", "c1.eth0"); h != "porin.c1%2Eeth0" {
		t.Errorf("a pod's handle is %q, which may be an attachment's", string(h))
	}
	for _, pod := range [][2]string{{"shop", "web"}, {"a.b", "web.2%2E"}, {"%", "."}} {
		namespace, name, ok := allocator.PodHandle(pod[0], pod[1]).Pod()
		if !ok || namespace != pod[0] || name != pod[1] {
			t.Errorf("the handle of %v is read as %q, %q, %v", pod, namespace, name, ok)
		}
	}
	for _, other := range []allocator.Handle{"", "x", ".web", "shop.", "porin.c1.eth0"} {
		if namespace, name, ok := other.Pod(); ok {
			t.Errorf("%q is read as pod %s/%s", string(other), namespace, name)
		}
	}
	if h := allocator.PodHandle("", "web"); h != "" {
		t.Errorf("the handle of a pod without namespace is %q", string(h))
	}
}
