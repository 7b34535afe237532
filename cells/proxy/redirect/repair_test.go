package redirect_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/testutil"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// programs is the [redirect.Link] of a test.
type programs struct {
	mu    sync.Mutex
	index int
}

func (p *programs) SetProxyLink(index int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index = index
	return nil
}

func (p *programs) ProxyLink() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.index, nil
}

func (p *programs) UseMaps(f func(map[string]*ebpf.Map) error) error { return f(nil) }

// world is a node with a way into the proxy.
type world struct {
	node     *testutil.Namespace
	link     *programs
	bpfRoot  string
	redirect *redirect.Redirect
}

func newWorld(t *testing.T) *world {
	t.Helper()
	testutil.NeedPrograms(t, "ip", "nft", "bpftool")
	w := &world{node: testutil.NetNS(t), link: &programs{}, bpfRoot: testutil.BPFFS(t)}
	w.shell(t, "ip link set lo up")
	w.redirect = w.newRedirect(t)
	return w
}

// newRedirect is a Redirect of an agent that has just started.
func (w *world) newRedirect(t *testing.T) *redirect.Redirect {
	r := redirect.New(redirect.Config{BPFRoot: w.bpfRoot}, w.link, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { must(t, r.Close()) })
	return r
}

func (w *world) open(t *testing.T, r *redirect.Redirect) {
	t.Helper()
	must(t, w.node.Do(func() error {
		_, err := r.Open()
		return err
	}))
}

// shell runs commands on the node, as an administrator does.
func (w *world) shell(t testing.TB, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	var out, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &stderr
	must(t, w.node.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, stderr.String())
	}
	return out.String()
}

func (w *world) pin() string { return filepath.Join(w.bpfRoot, "proxy", "select_listener") }

// state is all that is in the kernel, less numbers that change when it is restored.
func (w *world) state(t testing.TB) string {
	t.Helper()
	text := w.shell(t, `
		ip -br link | sed 's/@[^ ]*//' | awk '{ print $1, $2 }'; ip -br -4 addr show scope host
		for f in -4 -6; do ip $f rule; ip $f route show table all | grep -w 'table 10247' || true; done
		for s in ipv4/conf/porin-l7/rp_filter ipv4/conf/porin-l7/accept_local ipv6/conf/porin-l7/disable_ipv6; do cat /proc/sys/net/$s 2>&- || echo none; done
		nft list ruleset`)
	if _, err := os.Stat(filepath.Dir(w.pin())); err == nil {
		text += "pinned\n"
	}
	if index, _ := w.link.ProxyLink(); index != 0 {
		text += "redirected\n"
	}
	return text
}

// damage is what an administrator, or another program, does to a part.
type damage struct {
	part   redirect.Part
	script string
	do     func(w *world) error // instead of the script
}

var damages = []damage{
	{part: redirect.PartDevice, script: "ip link del porin-l7"},
	{part: redirect.PartDevice, script: "ip link set porin-l7 address 02:00:00:00:00:01"},
	{part: redirect.PartDevice, script: "ip link set porin-l7 down"},
	{part: redirect.PartDevice, script: "ip link set porin-l7-peer down"},
	{part: redirect.PartDevice, script: "ip link set porin-l7-peer down; ip link set porin-l7-peer name other0"},
	{part: redirect.PartDevice, script: "ip addr flush dev porin-l7"},
	{part: redirect.PartDevice, script: "echo 1 >/proc/sys/net/ipv4/conf/porin-l7/rp_filter"},
	{part: redirect.PartDevice, script: "echo 0 >/proc/sys/net/ipv4/conf/porin-l7/accept_local"},
	{part: redirect.PartDevice, script: "echo 1 >/proc/sys/net/ipv6/conf/porin-l7/disable_ipv6"},
	{part: redirect.PartDevice, script: "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; echo 0 >/proc/sys/net/ipv6/conf/lo/disable_ipv6"},
	{part: redirect.PartRoutes, script: "ip rule del pref 90"},
	{part: redirect.PartRoutes, script: "ip rule del pref 91"},
	{part: redirect.PartRoutes, script: "ip -6 rule del pref 92"},
	{part: redirect.PartRoutes, script: "ip rule del pref 91; ip rule add pref 91 fwmark 0xa8/0xfff lookup 254"},
	{part: redirect.PartRoutes, script: "ip route flush table 10247"},
	{part: redirect.PartRoutes, script: "ip -6 route flush table 10247"},
	{part: redirect.PartRoutes, script: "ip route add blackhole 10.1.0.0/16 table 10247"},
	{part: redirect.PartTable, script: "nft flush ruleset"},
	{part: redirect.PartTable, script: "nft flush chain inet porin-proxy divert"},
	{part: redirect.PartTable, script: "nft insert rule inet porin-proxy untracked accept"},
	{part: redirect.PartListener, do: func(w *world) error { return os.Remove(w.pin()) }},
	{part: redirect.PartListener, do: func(w *world) error { return w.link.SetProxyLink(0) }},
	{part: redirect.PartListener, do: func(w *world) error { return w.link.SetProxyLink(4711) }},
	{part: redirect.PartListener, script: "bpftool link detach pinned $PIN"},
	{part: redirect.PartListener, do: (*world).removeSocket},
}

// removeSocket takes one out of the map of the attached program.
func (w *world) removeSocket() error {
	attached, err := link.LoadPinnedLink(w.pin(), nil)
	if err != nil {
		return err
	}
	defer attached.Close()
	info, err := attached.Info()
	if err != nil {
		return err
	}
	program, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		return err
	}
	defer program.Close()
	own, err := program.Info()
	if err != nil {
		return err
	}
	ids, _ := own.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return err
		}
		defer m.Close()
		if m.Type() == ebpf.SockMap {
			return m.Delete(uint32(abi.ListenerTCP6))
		}
	}
	return errors.New("the program has no sockets")
}

func (d damage) cause(t testing.TB, w *world) {
	t.Helper()
	if d.do != nil {
		must(t, d.do(w))
		return
	}
	w.shell(t, strings.ReplaceAll(d.script, "$PIN", w.pin()))
}

func (w *world) differences(t testing.TB) []redirect.Difference {
	t.Helper()
	differences, err := w.redirect.Compare()
	must(t, err)
	return differences
}

// Whatever another program does, Compare names the part, and Repair makes all as it was.
func TestRepair(t *testing.T) {
	for i, d := range damages {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Log(d.script)
			w := newWorld(t)
			w.open(t, w.redirect)
			if found := w.differences(t); len(found) > 0 {
				t.Fatalf("differences after Open: %+v", found)
			}
			want := w.state(t)
			d.cause(t, w)
			if found := w.differences(t); !slices.ContainsFunc(found, func(f redirect.Difference) bool { return f.Part == d.part }) {
				t.Errorf("differences %+v, want one of part %d", found, d.part)
			}
			must(t, w.redirect.Repair())
			if found := w.differences(t); len(found) > 0 {
				t.Errorf("differences after Repair: %+v", found)
			}
			if got := w.state(t); !sameLines(got, want) {
				t.Errorf("after Repair there is\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func sameLines(x, y string) bool {
	lines := func(s string) []string { return slices.Sorted(slices.Values(strings.Split(s, "\n"))) }
	return slices.Equal(lines(x), lines(y))
}

// A device of the name that is another's is left alone.
func TestRepairForeignDevice(t *testing.T) {
	w := newWorld(t)
	w.open(t, w.redirect)
	w.shell(t, "ip link del porin-l7; ip link add porin-l7 type veth peer name other0")
	if found := w.differences(t); len(found) == 0 || !found[0].Foreign {
		t.Errorf("differences %+v, want a foreign device", found)
	}
	if err := w.redirect.Repair(); err == nil || w.redirect.Damage() == nil {
		t.Errorf("Repair with a foreign device: %v, and the damage is %v", err, w.redirect.Damage())
	}
	must(t, w.redirect.Remove())
	if links := w.shell(t, "ip -br link"); !strings.Contains(links, "porin-l7") {
		t.Errorf("Remove has removed a foreign device: %s", links)
	}
}

// Follow restores what the kernel notifies of before the next comparison is due.
func TestFollow(t *testing.T) {
	for _, script := range []string{
		"ip rule del pref 91", "ip link del porin-l7", "ip link set porin-l7 down", "nft delete table inet porin-proxy", "ip route flush table 10247",
		"ip addr flush dev porin-l7", "ip -6 rule del pref 92",
	} {
		w := newWorld(t)
		w.open(t, w.redirect)
		want := w.state(t)
		done := make(chan error, 1)
		go func() { done <- w.redirect.Follow(t.Context()) }()
		began := time.Now()
		w.shell(t, script)
		testutil.Eventually(t, func() error {
			if got := w.state(t); !sameLines(got, want) {
				return fmt.Errorf("%s: there is\n%s\nwant\n%s", script, got, want)
			}
			return nil
		})
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("%s: restored after %s: no notification was heard", script, took)
		}
		must(t, w.redirect.Remove())
		if err := <-done; err != nil {
			t.Errorf("Follow ends with %v when the way is removed", err)
		}
	}
}

func TestFollowEnds(t *testing.T) {
	w := newWorld(t)
	must(t, w.redirect.Follow(t.Context())) // not open
	w.open(t, w.redirect)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.redirect.Follow(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow ends with %v when its context ends", err)
	}
}

// Remove leaves nothing, of a previous agent's either, and may be called again. Open works after it.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	nothing := w.state(t)
	for name, end := range map[string]func(){
		"open": func() {}, "nothing": func() { must(t, w.redirect.Remove()) },
		"a previous agent's": func() {
			must(t, w.redirect.Close())
			w.redirect = w.newRedirect(t)
		},
		"half of a previous agent's": func() {
			must(t, w.redirect.Close())
			w.redirect = w.newRedirect(t)
			w.shell(t, "ip link del porin-l7; ip rule del pref 91; nft flush table inet porin-proxy")
		},
	} {
		w.open(t, w.redirect)
		end()
		for range 2 {
			must(t, w.node.Do(w.redirect.Remove))
			if got := w.state(t); !sameLines(got, nothing) {
				t.Errorf("%s: after Remove there is\n%s\nwant\n%s", name, got, nothing)
			}
		}
		if found := w.differences(t); found != nil {
			t.Errorf("%s: differences after Remove: %+v", name, found)
		}
	}
}
