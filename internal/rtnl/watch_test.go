package rtnl_test

import (
	"errors"
	"os"
	"testing"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestWatchLinks(t *testing.T) {
	nodeNS, podNS := testutil.NetNS(t), testutil.NetNS(t)
	var watch *rtnl.LinkWatch
	err := nodeNS.Do(func() (err error) {
		watch, err = rtnl.WatchLinks()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	index := addVeth(t, nodeNS, podNS, "por0")
	if err := nodeNS.Conn(t).Do(rtnl.DelLink(index)); err != nil {
		t.Fatal(err)
	}
	// It was made, described and changed before that: none of it is heard.
	if gone, err := watch.Next(); err != nil || gone != index {
		t.Fatalf("the end of %d, %v, want %d", gone, err, index)
	}
	if nodeNS.HasLink(t, index) {
		t.Error("the link is still there")
	}
	done := make(chan error)
	go func() {
		_, err := watch.Next()
		done <- err
	}()
	if err := watch.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Next after Close: %v", err)
	}
}
