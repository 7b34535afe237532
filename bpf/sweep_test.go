package bpf_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// sweep runs the sweep, and puts the timer off for longer than a test takes.
func (f *fixture) sweep(t testing.TB) abi.Sweep {
	t.Helper()
	return f.sweepOnce(t, time.Hour)
}

// sweepOnce runs the sweep; after the wait the timer goes on.
func (f *fixture) sweepOnce(t testing.TB, wait time.Duration) (done abi.Sweep) {
	t.Helper()
	done.WaitMs = uint32(wait.Milliseconds())
	out, err := binary.Append(nil, binary.NativeEndian, done)
	if err != nil {
		t.Fatal(err)
	}
	code := -int32(unix.ENOMEM) // in Linux 6.18 that may be so for a moment, when the timer is made
	for tries := 0; code == -int32(unix.ENOMEM) && tries < 1000; tries++ {
		returned, err := f.objects.Sweep.Run(&ebpf.RunOptions{Context: out, ContextOut: out})
		if err != nil {
			t.Fatal(err)
		}
		code = int32(returned)
	}
	if code != 0 {
		t.Fatalf("code %d", code)
	}
	if _, err := binary.Decode(out, binary.NativeEndian, &done); err != nil {
		t.Fatal(err)
	}
	done.WaitMs = 0
	return done
}

// expire lets an entry's time pass.
func (f *fixture) expire(t testing.TB, key abi.ConnectionKey) {
	t.Helper()
	var c abi.Connection
	if err := f.objects.Connections.Lookup(key, &c); err != nil {
		t.Fatal(err)
	}
	c.Expires = 0
	if err := f.objects.Connections.Put(key, c); err != nil {
		t.Fatal(err)
	}
}

func TestSweep(t *testing.T) {
	f := load(t)
	for _, row := range []struct {
		name string
		over func(t *testing.T, l conversation)
		left int
	}{
		{"nothing is over", func(*testing.T, conversation) {}, 2},
		{"one end has expired", func(t *testing.T, l conversation) {
			here, _ := l.keys()
			f.expire(t, here)
		}, 1},
		{"one pod is gone", func(t *testing.T, l conversation) { f.replacePod(t, f.bob) }, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.reset(t)
			l := newConversation(f, false, false)
			l.send(t, packet{"alice", syn, deliver})
			row.over(t, l)
			if got, want := f.sweep(t), (abi.Sweep{Visited: 2, Removed: uint32(2 - row.left)}); got != want {
				t.Errorf("swept %+v, want %+v", got, want)
			}
			if n := len(f.connections(t)); n != row.left {
				t.Errorf("%d entries are left, want %d", n, row.left)
			}
			f.checkUsage(t)
		})
	}
}

// TestExpired: an entry whose time is over counts for nothing, also before a sweep.
func TestExpired(t *testing.T) {
	f := load(t)
	f.reset(t)
	l := newConversation(f, false, false)
	l.send(t, packet{"alice by stack", syn, toStack})
	_, there := l.keys()
	f.expire(t, there)
	if verdict := l.send(t, packet{"bob", synACK, deliver}); verdict != deliver {
		t.Errorf("verdict %d, want %d: the node's conntrack knows nothing of it", verdict, deliver)
	}
	f.checkUsage(t)
}

// TestTimeouts: how long an entry lasts follows what has been seen of the connection.
func TestTimeouts(t *testing.T) {
	f := load(t)
	for _, row := range []struct {
		name    string
		udp     bool
		packets []packet
		want    uint32 // ticks
	}{
		{"half open", false, []packet{{from: "alice", flags: syn}}, 60},
		{"answered", false, []packet{{from: "alice", flags: syn}, {from: "bob", flags: synACK}}, 8000},
		{"one side has closed", false, []packet{{from: "alice", flags: syn}, {from: "bob", flags: synACK}, {from: "alice", flags: fin}}, 8000},
		{"both have closed", false, []packet{{from: "alice", flags: syn}, {from: "bob", flags: synACK}, {from: "alice", flags: fin}, {from: "bob", flags: fin}}, 10},
		{"reset by the server", false, []packet{{from: "alice", flags: syn}, {from: "bob", flags: rst}}, 10},
		{"through the stack, answered", false, []packet{{from: "bob by stack", flags: syn}, {from: "alice", flags: synACK}}, 8000},
		{"through the stack, closed", false, []packet{{from: "bob by stack", flags: syn}, {from: "alice", flags: fin}, {from: "bob by stack", flags: fin}}, 10},
		{"a datagram", true, []packet{{from: "alice", flags: datagram}}, 30},
		{"datagrams both ways", true, []packet{{from: "alice", flags: datagram}, {from: "bob", flags: datagram}}, 120},
	} {
		t.Run(row.name, func(t *testing.T) {
			f.reset(t)
			l := newConversation(f, false, row.udp)
			l.flushConntrack(t)
			before := ticks(t)
			for _, p := range row.packets {
				l.send(t, p)
			}
			after := ticks(t)
			here, _ := l.keys()
			c, ok := f.connections(t)[here]
			if got := c.Expires; !ok || got < before+row.want || got > after+row.want {
				t.Errorf("expires at %d, sent between %d and %d, want %d later; entries %+v", got, before, after, row.want, f.connections(t))
			}
		})
	}
}
