package netns_test

import (
	"testing"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

func TestFind(t *testing.T) {
	with, without := testutil.NetNS(t), testutil.NetNS(t)
	startIn(t, with)
	cookies := map[uint64]bool{}
	var want uint64
	for _, ns := range []*testutil.Namespace{with, without} {
		cookie, err := netns.Cookie(ns.FD())
		if err != nil {
			t.Fatal(err)
		}
		if ns == with {
			want = cookie
		}
		cookies[cookie] = true
	}
	found, err := netns.Find(t.Context(), cookies)
	if err != nil {
		t.Fatal(err)
	}
	defer netns.CloseAll(found)
	if len(found) != 1 || found[want] == nil {
		t.Fatalf("found %v, want the namespace with a process alone", found)
	}
	if cookie, err := netns.Cookie(int(found[want].Fd())); err != nil || cookie != want {
		t.Errorf("it has the cookie %d, %v, want %d", cookie, err, want)
	}
}
