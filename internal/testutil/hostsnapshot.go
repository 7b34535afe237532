package testutil

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

// HostSnapshot is what a network namespace looks like, as sorted lines of text: links, addresses, unicast routes of the
// main table, rules, permanent neighbours, qdiscs, network sysctls, nftables objects, and the tables of iptables.
// Values that the kernel changes by itself (counters, learned neighbours) are not in it.
type HostSnapshot []string

// TakeHostSnapshot reads the namespace of the calling thread. What cannot be read without root is left out.
func TakeHostSnapshot() (HostSnapshot, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	var s HostSnapshot
	if err := s.netlink(handle); err != nil {
		return nil, err
	}
	s.sysctls("/proc/sys/net")
	s.file("/proc/net/ip_tables_names")
	s.file("/proc/net/ip6_tables_names")
	s = append(s, nftObjects()...)
	slices.Sort(s)
	return s, nil
}

func (s *HostSnapshot) addf(format string, args ...any) {
	*s = append(*s, fmt.Sprintf(format, args...))
}

func (s *HostSnapshot) netlink(handle *netlink.Handle) error {
	for _, add := range []func(*netlink.Handle) error{s.links, s.addrs, s.routes, s.rules, s.neighbours, s.qdiscs} {
		if err := add(handle); err != nil {
			return err
		}
	}
	return nil
}

func (s *HostSnapshot) links(handle *netlink.Handle) error {
	links, err := nl.Dump(handle.LinkList)
	for _, link := range links {
		l := link.Attrs()
		s.addf("link %d %s altnames %q alias %q kind %s mac %s flags %#x mtu %d group %d master %d parent %d in namespace %d",
			l.Index, l.Name, l.AltNames, l.Alias, link.Type(), l.HardwareAddr, l.RawFlags, l.MTU, l.Group, l.MasterIndex, l.ParentIndex, l.NetNsID)
	}
	return err
}

func (s *HostSnapshot) addrs(handle *netlink.Handle) error {
	addrs, err := nl.Dump(func() ([]netlink.Addr, error) { return addrsOf(0)(handle) })
	for _, a := range addrs {
		s.addf("address %s of link %d scope %d flags %#x", a.IPNet, a.LinkIndex, a.Scope, a.Flags)
	}
	return err
}

func (s *HostSnapshot) routes(handle *netlink.Handle) error {
	routes, err := nl.Dump(func() ([]netlink.Route, error) { return routesOf(0)(handle) })
	for _, r := range routes {
		s.addf("route %s by link %d gateway %s source %s next hops %v protocol %d scope %d priority %d mtu %d onlink %t",
			r.Dst, r.LinkIndex, r.Gw, r.Src, r.MultiPath, r.Protocol, r.Scope, r.Priority, r.MTU, r.Flags&int(netlink.FLAG_ONLINK) != 0)
	}
	return err
}

func (s *HostSnapshot) rules(handle *netlink.Handle) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := nl.Dump(func() ([]netlink.Rule, error) { return handle.RuleList(family) })
		if err != nil {
			return err
		}
		for _, r := range rules {
			text, err := json.Marshal(r) // which follows its pointers
			if err != nil {
				return err
			}
			s.addf("rule %s", text)
		}
	}
	return nil
}

func (s *HostSnapshot) neighbours(handle *netlink.Handle) error {
	entries, err := nl.Dump(func() ([]netlink.Neigh, error) { return permanentNeighboursOf(0)(handle) })
	for _, n := range entries {
		s.addf("neighbour %s on link %d is %s state %#x", n.IP, n.LinkIndex, n.HardwareAddr, n.State)
	}
	return err
}

func (s *HostSnapshot) qdiscs(handle *netlink.Handle) error {
	qdiscs, err := nl.Dump(func() ([]netlink.Qdisc, error) { return handle.QdiscList(nil) })
	for _, q := range qdiscs {
		s.addf("qdisc %s handle %#x of link %d parent %#x", q.Type(), q.Attrs().Handle, q.Attrs().LinkIndex, q.Attrs().Parent)
	}
	return err
}

// busySysctls change by themselves.
var busySysctls = []string{"nf_conntrack_count"}

func (s *HostSnapshot) sysctls(root string) {
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && !slices.Contains(busySysctls, entry.Name()) {
			s.file(path)
		}
		return nil
	})
}

// file adds one file's text, if it can be read.
func (s *HostSnapshot) file(path string) {
	if text, err := os.ReadFile(path); err == nil {
		s.addf("%s = %q", path, strings.TrimSpace(string(text)))
	}
}

// unchanged compares the snapshot with the namespace as it is now.
func (s HostSnapshot) unchanged() error {
	now, err := TakeHostSnapshot()
	if err != nil {
		return err
	}
	if diff := s.Diff(now); diff != "" {
		return fmt.Errorf("the tests changed the machine's own network namespace:\n%s", diff)
	}
	return nil
}

// Diff lists what is only in s ("-") and only in other ("+"); it is empty when they are the same.
func (s HostSnapshot) Diff(other HostSnapshot) string {
	var b strings.Builder
	for _, line := range s {
		if _, ok := slices.BinarySearch(other, line); !ok {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range other {
		if _, ok := slices.BinarySearch(s, line); !ok {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}
