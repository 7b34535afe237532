package ipam_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/nodeaddr"
	"porin.dev/porin/internal/testutil"
)

// interfaces is an [nodeaddr.Source] that is told what the node has.
type interfaces struct {
	mu      sync.Mutex // guards the fields below
	has     map[netip.Addr]string
	lists   int
	err     error
	changes chan netip.Addr
}

func (i *interfaces) List() (map[netip.Addr]string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lists++
	return maps.Clone(i.has), i.err
}

func (i *interfaces) Watch(ctx context.Context) (<-chan netip.Addr, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changes := make(chan netip.Addr)
	i.changes = changes
	context.AfterFunc(ctx, func() { i.lose(changes) })
	return changes, nil
}

// lose ends a watch, as the kernel does that has dropped notifications.
func (i *interfaces) lose(changes chan netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.changes == changes {
		close(changes)
		i.changes = nil
	}
}

// set gives an interface an address, or takes it when the name is empty.
func (i *interfaces) set(addr, ifname string) {
	i.mu.Lock()
	ip := netip.MustParseAddr(addr)
	if i.has[ip] = ifname; ifname == "" {
		delete(i.has, ip)
	}
	changes := i.changes
	i.mu.Unlock()
	if changes != nil {
		changes <- ip
	}
}

func podCIDRNode(t *testing.T) *allocator.Allocator {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/24"}
	n, err := ipam.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func next(t *testing.T, n *allocator.Allocator, owner allocator.Handle, want string) {
	t.Helper()
	got, err := allocator.NewSource(n, nil).Allocate(t.Context(), allocator.Request{Owner: owner})
	if err != nil || got.Addresses.IPv4.String() != want {
		t.Errorf("%s got %s, error %v, want %s", owner, got.Addresses.IPv4, err, want)
	}
}

func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n, node := podCIDRNode(t), &interfaces{has: map[netip.Addr]string{netip.MustParseAddr("10.0.0.2"): "cni0"}}
		f := ipam.NewFollower(node, n, slog.New(slog.NewTextHandler(&log, nil)))
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		next(t, n, "c1", "10.0.0.3")
		node.set("10.0.0.4", "docker0")
		node.set("10.0.0.3", "eth0") // c1's
		synctest.Wait()
		next(t, n, "c2", "10.0.0.5")
		next(t, n, "c1", "10.0.0.3")

		lists := node.lists
		node.set("192.0.2.1", "eth0")
		synctest.Wait()
		if node.lists != lists {
			t.Error("the addresses were listed for one that lies in no prefix")
		}

		node.lose(node.changes)
		synctest.Wait()
		node.set("10.0.0.6", "docker0") // without notice
		time.Sleep(2 * time.Second)
		next(t, n, "c3", "10.0.0.7")
		node.set("10.0.0.4", "")
		synctest.Wait()
		if usage := n.Usage().Pools[0].Blocks[0]; len(usage.NodeAddresses) != 3 || usage.Free != 253-2-3 {
			t.Errorf("after an address went: %+v, want 3 addresses of the node, and 1 of them in use", usage)
		}
		if err := f.Stop(t.Context()); err != nil {
			t.Error(err)
		}

		for line, want := range map[string]int{
			"level=INFO": 3, "level=ERROR": 1, "ip=10.0.0.2 ifname=cni0": 1, "ip=10.0.0.3 ifname=eth0 owner=c1": 1,
		} {
			if got := strings.Count(log.String(), line); got != want {
				t.Errorf("the log has %q %d times, want %d:\n%s", line, got, want, log.String())
			}
		}
	})
}

func TestFollowerStartFails(t *testing.T) {
	broken := errors.New("broken")
	f := ipam.NewFollower(&interfaces{err: broken}, podCIDRNode(t), slog.New(slog.DiscardHandler))
	if err := f.Start(); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if err := f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// nodeNamespace is the [nodeaddr.Source] of a namespace.
type nodeNamespace struct{ *testutil.Namespace }

func (n nodeNamespace) List() (list map[netip.Addr]string, err error) {
	err = n.Do(func() (err error) {
		list, err = nodeaddr.NewKernel().List()
		return err
	})
	return list, err
}

func (n nodeNamespace) Watch(ctx context.Context) (changes <-chan netip.Addr, err error) {
	err = n.Do(func() (err error) {
		changes, err = nodeaddr.NewKernel().Watch(ctx)
		return err
	})
	return changes, err
}

func TestFollowerOfKernel(t *testing.T) {
	ns, n := testutil.NetNS(t), podCIDRNode(t)
	change := func(change func(netlink.Link, *netlink.Addr) error, cidr string) {
		t.Helper()
		err := ns.Do(func() error {
			cni0, err := netlink.LinkByName("cni0")
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(cidr)
			if err != nil {
				return err
			}
			return change(cni0, addr)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := ns.Do(func() error { // a bridge that is down, as one is that another agent has left
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	change(netlink.AddrAdd, "10.0.0.2/24")
	f := ipam.NewFollower(nodeNamespace{ns}, n, slog.New(slog.DiscardHandler))
	if err := f.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Stop(context.Background()) }()
	avoided := func() []netip.Addr { return n.Usage().Pools[0].Blocks[0].NodeAddresses }
	want := func(addrs ...string) {
		t.Helper()
		testutil.Eventually(t, func() error {
			got := avoided()
			if len(got) != len(addrs) {
				return errors.New("another number of addresses")
			}
			for i := range got {
				if got[i].String() != addrs[i] {
					return errors.New("another address")
				}
			}
			return nil
		})
	}
	if got := avoided(); len(got) != 1 || got[0].String() != "10.0.0.2" {
		t.Errorf("after the start %v is avoided, want 10.0.0.2", got)
	}
	change(netlink.AddrAdd, "10.0.0.9/24")
	want("10.0.0.2", "10.0.0.9")
	change(netlink.AddrDel, "10.0.0.2/24") // the primary address: the kernel takes the secondary one with it
	want()
}

// The supervisor stops a task before the cell that it is of.
func TestFollowerTaskStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := ipam.NewFollower(&interfaces{has: map[netip.Addr]string{}}, podCIDRNode(t), slog.New(slog.DiscardHandler))
		if err := f.Start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
		defer cancel()
		if err := f.Task().Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := f.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
}
