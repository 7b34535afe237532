package rtnl_test

import (
	"errors"
	"os"
	"testing"

	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestWatchHearsOfTheEndOfALink(t *testing.T) {
	nodeNS, podNS := testutil.NetNS(t), testutil.NetNS(t)
	var watch *rtnl.LinkWatch
	err := nodeNS.Do(func() (err error) {
		watch, err = rtnl.WatchLinks()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var host rtnl.Link
	err = nodeNS.Conn(t).Do(
		rtnl.NewVeth(rtnl.Veth{Name: "por0", MAC: hostMAC, Peer: rtnl.VethPeer{Name: "eth0", MAC: podMAC, NetNS: podNS.FD()}}),
		rtnl.LinkByName("por0", &host),
		rtnl.DelLinkByName("por0"),
	)
	if err != nil {
		t.Fatal(err)
	}
	for seen := false; ; seen = true {
		event, err := watch.Next()
		if err != nil || event.Index != host.Index {
			t.Fatalf("event = %+v, %v", event, err)
		}
		if event.Deleted {
			if !seen {
				t.Error("deleted before it was created")
			}
			break
		}
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
