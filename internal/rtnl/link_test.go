package rtnl_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// addVeth makes a pair between two namespaces, and returns the index of the near end, which is up.
func addVeth(t *testing.T, near, far *testutil.Namespace, name string) (index int) {
	t.Helper()
	link, err := near.AddVeth(testutil.Veth{Name: name, Peer: far, PeerName: "eth-" + name})
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

func TestLinks(t *testing.T) {
	near, far := testutil.NetNS(t), testutil.NetNS(t)
	conn := near.Conn(t)
	a, b, c := addVeth(t, near, far, "por0"), addVeth(t, near, far, "por1"), addVeth(t, near, far, "por2")
	alias := strings.Repeat("a", 255)
	if err := near.Netlink(t).LinkSetAlias(testutil.LinkAt(a), alias); err != nil {
		t.Fatal(err)
	}
	var link rtnl.Link
	if err := conn.Do(rtnl.LinkByName("por0", &link)); err != nil || link != (rtnl.Link{Index: a, Alias: alias}) {
		t.Errorf("link %+v, error %v", link, err)
	}
	if err := conn.Do(rtnl.LinkDown(a)); err != nil || testutil.IsUp(near.Link(t, "por0")) {
		t.Errorf("after LinkDown: %+v, error %v", near.Link(t, "por0").Attrs(), err)
	}
	for _, index := range []int{a, b} {
		if err := conn.Do(rtnl.LinkDownAndGroup(index, 4242)); err != nil {
			t.Fatal(err)
		}
	}
	if link := near.Link(t, "por1"); testutil.IsUp(link) || link.Attrs().Group != 4242 {
		t.Errorf("after LinkDownAndGroup: %+v", link.Attrs())
	}
	if err := conn.Do(rtnl.DelLinkGroup(4242)); err != nil || near.HasLink(t, a) || near.HasLink(t, b) || !near.HasLink(t, c) {
		t.Errorf("after DelLinkGroup: %v, error %v", near.LinkNames(t), err)
	}
	if err := conn.Do(rtnl.DelLink(c)); err != nil || near.HasLink(t, c) {
		t.Errorf("after DelLink: %v, error %v", near.LinkNames(t), err)
	}
	for what, r := range map[string]rtnl.Request{
		"get": rtnl.LinkByName("por0", &link), "down": rtnl.LinkDown(a),
		"group": rtnl.LinkDownAndGroup(a, 4242), "delete": rtnl.DelLink(a), "delete group": rtnl.DelLinkGroup(4242),
	} {
		if err := conn.Do(r); !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), " link ") {
			t.Errorf("%s: error %v, want %v", what, err, unix.ENODEV)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	conn := testutil.NetNS(t).Conn(t)
	for range 2 {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := conn.Do(rtnl.DelLink(4711)); !errors.Is(err, unix.EBADF) {
		t.Errorf("after Close: error %v, want %v", err, unix.EBADF)
	}
}
