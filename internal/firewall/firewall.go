// Package firewall finds the nftables chains of other programs that drop forwarded packets. It does not see legacy
// iptables.
package firewall

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
)

// Chain drops packets that none of its rules accepts.
type Chain struct {
	Name  string // as "chain FORWARD of nftables' table ip filter"
	Why   string // "policy drop", or which rule
	Owner string // the program that has probably made it; empty if not known
}

func (c Chain) String() string {
	return fmt.Sprintf("%s has %s; owner: %s", c.Name, c.Why, cmp.Or(c.Owner, "not known"))
}

// owners maps prefixes of table and chain names to the program that uses them. Several programs may share a table.
var owners = []struct{ prefix, program string }{
	{"firewalld", "firewalld"}, {"ufw", "ufw"}, {"DOCKER", "Docker"}, {"LIBVIRT", "libvirt"}, {"NETAVARK", "Podman"}, {"CNI-", "a CNI plugin"}, {"f2b-", "fail2ban"},
}

// ownerOf returns the programs to which the names of a table and its chains belong.
func ownerOf(names []string) string {
	var programs []string
	for _, o := range owners {
		if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, o.prefix) }) {
			programs = append(programs, o.program)
		}
	}
	return strings.Join(programs, " or ")
}

// Dropping returns the chains that drop forwarded packets of the network namespace unless a rule accepts them. It
// leaves out Porin's tables.
func Dropping(namespace *os.File) ([]Chain, error) { return netns.Call(int(namespace.Fd()), dropping) }

func dropping() (found []Chain, err error) {
	conn, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	defer func() { _ = conn.CloseLasting() }()
	all, err := conn.ListChains()
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil // no nf_tables
	}
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	for _, c := range all {
		if c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward || c.Type != nftables.ChainTypeFilter || strings.HasPrefix(c.Table.Name, "porin") {
			continue
		}
		why := ""
		if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			why = "policy drop"
		} else if rules, err := conn.GetRules(c.Table, c); err == nil && len(rules) > 0 && dropsAll(rules[len(rules)-1].Exprs) {
			why = "a last rule that drops or rejects everything"
		}
		if why == "" {
			continue
		}
		names := []string{c.Table.Name}
		for _, other := range all {
			if other.Table.Name == c.Table.Name && other.Table.Family == c.Table.Family {
				names = append(names, other.Name)
			}
		}
		found = append(found, Chain{Name: fmt.Sprintf("chain %s of nftables' table %s %s", c.Name, familyNames[c.Table.Family], c.Table.Name), Why: why, Owner: ownerOf(names)})
	}
	return found, nil
}

var familyNames = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}

// dropsAll reports whether a rule drops or rejects without a condition.
func dropsAll(rule []expr.Any) (drops bool) {
	for _, e := range rule {
		switch e := e.(type) {
		case *expr.Counter, *expr.Log:
		case *expr.Reject:
			drops = true
		case *expr.Verdict:
			drops = e.Kind == expr.VerdictDrop
		case *expr.Target: // of iptables
			drops = e.Name == "REJECT"
		default:
			return false
		}
	}
	return drops
}
