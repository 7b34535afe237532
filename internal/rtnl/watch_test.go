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
	// It was made, described and changed before that: none of it is heard.
	if link, err := watch.Next(); err != nil || link.Index != host.Index || link.Name != "por0" {
		t.Fatalf("the end of %+v, %v", link, err)
	}
	var again rtnl.Link
	if err := nodeNS.Conn(t).Do(rtnl.LinkByIndex(host.Index, &again)); err == nil {
		t.Errorf("%+v is still there", again)
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
