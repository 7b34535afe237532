package plugin

import (
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

func TestANoteSaysWhoseALinkIsAndWhenItsADDBegan(t *testing.T) {
	long := strings.Repeat("a", 256)
	for _, c := range []struct{ id, ifname, want string }{
		{"c1", "eth0", "c1:eth0 began=123456"},
		{"c1", "began=7", "c1:began=7 began=123456"},
		{long, "eth0", "began=123456"},
	} {
		got := note(spec.Attachment{ContainerID: c.id, IfName: c.ifname}, 123456)
		if got != c.want {
			t.Errorf("the note is %q, want %q", got, c.want)
		}
		link := rtnl.Link{Alias: got}
		if !bornAfter(link, 123455) || bornAfter(link, 123456) {
			t.Errorf("%q is not read as it was written", got)
		}
	}
}

func TestALinkThatDoesNotSayWhenItBeganIsOfNoLaterLife(t *testing.T) {
	for _, alias := range []string{"", "c1:eth0", "c1:eth0 began=", "c1:eth0 began=soon", "c1:eth0 began=9 ", "c1:began=9", "began=99999999999999999999"} {
		if bornAfter(rtnl.Link{Alias: alias}, 1) {
			t.Errorf("%q is taken for that of a later life", alias)
		}
	}
}

// TestALateADDSparesTheLinkOfALaterLife is a process that was stopped between its start and its first effect.
func TestALateADDSparesTheLinkOfALaterLife(t *testing.T) {
	node, ctr, agent, a := newAdd(t)
	late := a.task
	later := *late
	later.began.boot += time.Second
	run := func(task *task) error {
		return node.Do(func() error { _, err := task.add(); return err })
	}
	if err := run(&later); err != nil {
		t.Fatal(err)
	}
	links := func() string {
		all, err := node.Conn(t).Links()
		if err != nil || len(all) != 2 {
			t.Fatalf("links %+v, %v", all, err)
		}
		return all[1].Name + all[1].Alias
	}
	before := links()
	fault := spec.AsError(run(late))
	if fault.Code != spec.TryAgain || !strings.Contains(fault.Msg, "a later ADD has made it") {
		t.Errorf("error %v", fault)
	}
	if now := links(); now != before || len(agent.Endpoints()) != 1 {
		t.Errorf("the link was %q and is %q; endpoints %v", before, now, agent.Endpoints())
	}
	if pod, err := ctr.Conn(t).Links(); err != nil || len(pod) != 2 {
		t.Errorf("links in the container: %+v, %v", pod, err)
	}
}
