package ipam_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
)

// asking runs a test on a node of prefixes whose asker runs, by a clock that moves when all wait.
func asking(t *testing.T, run func(t *testing.T, n ipam.Node, who *names), prefixes ...string) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, prefixes...)
		n.Asker.Start()
		defer n.Asker.Stop()
		run(t, n, who)
	})
}

func wantQuestions(t *testing.T, who *names, what string, want int) {
	t.Helper()
	synctest.Wait()
	if got := who.questions(); got != want {
		t.Errorf("%s: %d questions by now, want %d", what, got, want)
	}
}

func TestAnAllocationAsksNobody(t *testing.T) {
	asking(t, func(t *testing.T, n ipam.Node, who *names) {
		for life := range 3 { // the prefix is used up in the second
			for i := range 100 {
				if _, err := get(n, ipam.Handle(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			wantQuestions(t, who, "all have an address", life)
			for i := range 100 {
				n.Allocator.Release(ipam.Handle(fmt.Sprint(i)))
			}
			time.Sleep(31 * time.Second)
			wantQuestions(t, who, "all have rested", life+1)
		}
		time.Sleep(24 * time.Hour)
		wantQuestions(t, who, "nothing is due for a day", 3)
	}, "10.0.0.0/25", "fd00::/64")
}

func TestManyThatHaveRestedAreOneQuestionASecond(t *testing.T) {
	asking(t, func(t *testing.T, n ipam.Node, who *names) {
		for i := range 100 {
			got, _ := n.Allocator.Allocate(t.Context(), ipam.Request{Owner: ipam.Handle(fmt.Sprint(i))})
			n.Allocator.ReleaseListed(got)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		wantQuestions(t, who, "100 in 10 s", 11)
	}, "10.0.0.0/24")
}

func TestWhatIsStillNamedIsAskedAboutNowAndThenForTwentyMinutes(t *testing.T) {
	asking(t, func(t *testing.T, n ipam.Node, who *names) {
		wantGot(t, n, "a", "10.0.0.2")
		who.set("10.0.0.2", true)
		n.Allocator.Release("a")
		time.Sleep(31 * time.Second)
		wantQuestions(t, who, "it has rested", 1)
		wantGot(t, n, "b", "10.0.0.3")
		time.Sleep(30 * time.Second)
		wantQuestions(t, who, "half a minute later", 2)
		time.Sleep(time.Hour)
		wantQuestions(t, who, "an hour later", 39)
		if r := n.Allocator.Usage().Pools[0].Ranges[0]; r.Quarantined != 0 {
			t.Errorf("%+v, want none in quarantine", r)
		}
	}, "10.0.0.0/24")
}

func TestAQuarantineThatBecomesShorterIsAskedAboutAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := multiPool(t, who)
		n.Asker.Start()
		defer n.Asker.Stop()
		add(t, n, "10.0.0.0/29")
		wantGot(t, n, "a", "10.0.0.0")
		n.Allocator.Release("a")
		time.Sleep(5 * time.Second)
		n.MultiPool.Configure(ipam.DefaultPool, ipam.Settings{IPv4: true, Quarantine: time.Second})
		wantQuestions(t, who, "it has rested for 5 s", 1)
	})
}

// TestAnAnswerIsOfTheReleaseThatWasAskedAbout has the address be used and released again while somebody looks.
func TestAnAnswerIsOfTheReleaseThatWasAskedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/29")
		wantGot(t, n, "a", "10.0.0.2")
		n.Allocator.Release("a")
		time.Sleep(time.Minute)
		who.meanwhile = func() {
			if err := n.Allocator.Adopt(ipam.Allocation{Owner: "b", Addresses: ipv4("10.0.0.2")}); err != nil {
				t.Error(err)
			}
			n.Allocator.Release("b")
		}
		n.Asker.Ask(t.Context())
		if r := n.Allocator.Usage().Pools[0].Ranges[0]; r.Quarantined != 1 {
			t.Errorf("%+v, want it in quarantine", r)
		}
	})
}

// TestABlockMayGoWhileOthersAreAskedAboutIt keeps the question from bringing back what is nobody's business any more.
func TestABlockMayGoWhileOthersAreAskedAboutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := multiPool(t, who)
		add(t, n, "10.0.0.0/29")
		wantGot(t, n, "a", "10.0.0.0")
		n.Allocator.Release("a")
		time.Sleep(time.Minute)
		who.meanwhile = func() {
			n.MultiPool.Configure(ipam.DefaultPool, ipam.Settings{IPv4: true}) // nothing rests any more
			if err := n.MultiPool.Remove(ipam.DefaultPool, netip.MustParsePrefix("10.0.0.0/29")); err != nil {
				t.Error(err)
			}
		}
		n.Asker.Ask(t.Context())
		if blocks := n.MultiPool.Blocks(ipam.DefaultPool); len(blocks) != 0 {
			t.Errorf("%+v", blocks)
		}
	})
}

func TestAnAllocationThatMustAskWaitsAsLongAsItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := newNames()
		n := podCIDR(t, who, "10.0.0.0/30")
		wantGot(t, n, "a", "10.0.0.2")
		n.Allocator.Release("a")
		time.Sleep(time.Minute)
		answer := make(chan struct{})
		who.meanwhile = func() { <-answer }
		go n.Asker.Ask(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.Allocator.Allocate(ctx, ipam.Request{Owner: "b", Want: endpointmanager.Addresses{}})
		wantFault(t, "the caller has gone", err, context.DeadlineExceeded)
		close(answer)
		synctest.Wait()
		wantGot(t, n, "b", "10.0.0.2")
		wantQuestions(t, who, "the answer to the other one is enough", 1)
	})
}
