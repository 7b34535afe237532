package testutil

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// HostSnapshot is what a network namespace looks like, as sorted lines of text: links, addresses, routes of the main
// table, permanent neighbours, network sysctls, nftables objects, and the tables of iptables. What the kernel changes
// by itself (counters, learned neighbours) is not in it.
type HostSnapshot []string

// TakeHostSnapshot reads the namespace of the calling thread. What cannot be read without root is left out.
func TakeHostSnapshot() (HostSnapshot, error) {
	conn, err := rtnl.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var s HostSnapshot
	if err := s.netlink(conn); err != nil {
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

func (s *HostSnapshot) netlink(conn *rtnl.Conn) error {
	links, err := conn.Links()
	if err != nil {
		return err
	}
	for _, l := range links {
		s.addf("link %+v", l)
	}
	addrs, err := conn.Addrs(0)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		s.addf("address %+v", a)
	}
	routes, err := conn.Routes(0)
	if err != nil {
		return err
	}
	for _, r := range routes {
		s.addf("route %+v", r)
	}
	neighs, err := conn.Neighs(0)
	if err != nil {
		return err
	}
	for _, n := range neighs {
		if n.State&unix.NUD_PERMANENT != 0 {
			s.addf("neighbour %+v", n)
		}
	}
	return nil
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
