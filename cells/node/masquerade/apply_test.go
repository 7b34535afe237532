package masquerade_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/node/masquerade"
	"porin.dev/porin/internal/nft"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func TestNoTableWithoutSources(t *testing.T) {
	w := newWorld(t)
	must(t, w.table.Apply(masquerade.Desired{Inside: w.desired().Inside}))
	if text := w.list(t); text != "" {
		t.Errorf("there is nobody to masquerade, and there is\n%s", text)
	}
	must(t, w.table.Apply(w.desired()))
	if text := w.list(t); !strings.Contains(text, "table inet porin-masquerade") {
		t.Errorf("no table:\n%s", text)
	}
	must(t, w.newTable(t, masquerade.Config{Families: masquerade.Both}).Apply(masquerade.Desired{})) // a previous agent's table
	must(t, w.table.Apply(masquerade.Desired{}))
	if text := w.list(t); text != "" {
		t.Errorf("without sources there is\n%s", text)
	}
}

// The addresses that are never masqueraded, whatever is asked for.
func TestMulticastAndLinkLocalKeepSource(t *testing.T) {
	w := newWorld(t)
	must(t, w.table.Apply(w.desired()))
	text := w.list(t)
	for _, element := range []string{"224.0.0.0/4", "255.255.255.255", "ff00::/8", "fe80::/10"} {
		if !strings.Contains(text, element) {
			t.Errorf("%s is not in\n%s", element, text)
		}
	}
	if strings.Contains(text, "169.254") {
		t.Errorf("link-local IPv4, where metadata services are, is left out:\n%s", text)
	}
}

// The prefixes of Desired may contain each other and lie side by side; only the difference is written.
func TestApplyChange(t *testing.T) {
	w := newWorld(t)
	p := netip.MustParsePrefix
	for i, inside := range [][]netip.Prefix{
		{p("10.0.0.0/24"), p("10.0.1.0/24"), p("10.0.2.0/24"), p("fd00::/64"), p("fd00:0:0:1::/64")},
		{p("10.0.0.0/24"), p("10.0.2.0/24"), p("fd00::/64")},
		{p("10.0.0.0/24"), p("10.0.1.0/25"), p("10.0.2.0/24"), p("10.0.0.0/23"), p("10.0.0.1/32")},
		{p("0.0.0.0/0"), p("10.0.0.0/8")},
		{p("128.0.0.0/1"), p("8000::/1"), p("255.255.255.254/31")},
		{p("::/0")},
		{},
	} {
		d := w.desired()
		d.Inside = inside
		before := w.generation(t)
		must(t, w.table.Apply(d))
		after := w.generation(t)
		if after != before+1 {
			t.Errorf("change %d took %d transactions", i, after-before)
		}
		slices.Reverse(d.Inside)
		must(t, w.table.Apply(d))
		must(t, w.newTable(t, masquerade.Config{Families: masquerade.Both}).Apply(d)) // which reads what there is
		if w.generation(t) != after {
			t.Errorf("change %d is not what there is:\n%s", i, w.list(t))
		}
	}
}

func (w *world) generation(t testing.TB) uint32 {
	t.Helper()
	owner := nft.New(w.node.File(), &nft.Table{}, nil)
	defer owner.Close()
	generation, err := owner.Generation()
	must(t, err)
	return generation
}

var damages = []string{
	"flush ruleset",
	"delete table inet porin-masquerade",
	"flush chain inet porin-masquerade postrouting",
	"insert rule inet porin-masquerade postrouting accept",
	"add table inet porin-masquerade { flags dormant; }",
	"flush set inet porin-masquerade sources-ipv4",
	"add element inet porin-masquerade inside-ipv6 { 2001:db9::/32 }",
	"add element inet porin-masquerade pods-ipv4 { 10.100.1.1 }",
	"delete element inet porin-masquerade inside-ipv4 { 224.0.0.0/4 }",
	"delete table inet porin-masquerade; add table inet porin-masquerade; add chain inet porin-masquerade postrouting",
}

// Whatever another program does to the table, the next Apply repairs it, and Compare reports it.
func TestApplyRepairs(t *testing.T) {
	w := newWorld(t)
	w.rules(t, "table inet other {\nchain input {\ntype filter hook input priority 0;\n}\n}\n")
	for _, damage := range damages {
		for name, table := range map[string]*masquerade.Table{"the same agent": w.table, "the next agent": w.newTable(t, masquerade.Config{Families: masquerade.Both})} {
			must(t, w.table.Apply(w.desired()))
			want := w.list(t)
			w.rules(t, damage+"\n")
			if differences, err := w.table.Compare(); err != nil || len(differences) == 0 {
				t.Errorf("%s: no difference, %v", damage, err)
			}
			must(t, table.Apply(w.desired()))
			if damage == "flush ruleset" { // which took the other one
				w.rules(t, "table inet other {\nchain input {\ntype filter hook input priority 0;\n}\n}\n")
			}
			if got := w.list(t); sorted(got) != sorted(want) {
				t.Errorf("%s, repaired by %s:\n%s\nwant\n%s", damage, name, got, want)
			}
			if differences, err := w.table.Compare(); err != nil || len(differences) > 0 {
				t.Errorf("%s: after the repair: %v, %v", damage, differences, err)
			}
		}
	}
}

// sorted leaves out how tables and elements are ordered, and what is counted.
func sorted(list string) string {
	lines := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(",\n{}", r) })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
		if at := strings.Index(lines[i], "counter packets"); at >= 0 {
			lines[i] = lines[i][:at]
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestRunRestores(t *testing.T) {
	w := newWorld(t)
	must(t, w.table.Apply(w.desired()))
	want := sorted(w.list(t))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.table.Run(ctx) }()
	for _, damage := range damages[:4] { // a fifth one is below, and after that a repair waits
		w.rules(t, damage+"\n")
		testutil.Eventually(t, func() error {
			if got := sorted(w.list(t)); got != want {
				return fmt.Errorf("%s: there is\n%s\nwant\n%s", damage, got, want)
			}
			return nil
		})
	}
	must(t, w.table.Apply(masquerade.Desired{}))
	saved := "add table inet porin-masquerade\nadd chain inet porin-masquerade postrouting { type nat hook postrouting priority 110; }\n"
	w.rules(t, saved) // from a saved ruleset
	testutil.Eventually(t, func() error {
		if got := w.list(t); got != "" {
			return fmt.Errorf("there is\n%s", got)
		}
		return nil
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ends with %v", err)
	}
}

func TestChecker(t *testing.T) {
	w := newWorld(t)
	checker := masquerade.NewChecker(w.table)
	examine := func(want int) (repair func(context.Context) error) {
		t.Helper()
		findings, err := checker.Examine(t.Context(), "")
		must(t, err)
		if len(findings) != want {
			t.Fatalf("findings %+v, want %d", findings, want)
		}
		for _, f := range findings {
			repair = f.Repair
		}
		return repair
	}
	w.rules(t, "add table inet porin-masquerade\n")
	examine(0) // a previous agent's, until it is known what should be
	must(t, w.table.Apply(w.desired()))
	examine(0)
	w.rules(t, "flush chain inet porin-masquerade postrouting\n")
	must(t, examine(1)(t.Context()))
	examine(0)
	must(t, w.table.Apply(masquerade.Desired{}))
	examine(0)
}

func TestConfigValidate(t *testing.T) {
	for _, bad := range []masquerade.Config{
		{Families: "yes"}, {}, {Families: masquerade.Both, Exclude: []string{"10.0.0.1"}}, {Families: masquerade.Both, Exclude: []string{"10.0.0.1/8"}},
		{Families: masquerade.Both, Exclude: []string{"::ffff:10.0.0.0/104"}}, {Families: masquerade.Both, Exclude: []string{"x/8"}},
	} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	must(t, masquerade.Config{Families: masquerade.IPv6, Exclude: []string{"10.0.0.0/8", " fd00::/8"}}.Validate())
}

// large is the desired state of a cluster of so many nodes with two blocks of each family.
func (w *world) large(nodes int) masquerade.Desired {
	d := masquerade.Desired{Sources: w.desired().Sources}
	for i := range nodes {
		for block := range 2 {
			hi, lo := byte(i>>8), byte(i)
			d.Inside = append(d.Inside,
				netip.PrefixFrom(netip.AddrFrom4([4]byte{11, hi, lo, byte(block) << 7}), 26),
				netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x11, 4: hi, 5: lo, 7: byte(block)}), 64))
		}
		d.Inside = append(d.Inside, hostPrefix(netip.AddrFrom4([4]byte{12, 0, byte(i >> 8), byte(i)})), hostPrefix(netip.AddrFrom16([16]byte{0xfd, 0x12, 14: byte(i >> 8), 15: byte(i)})))
	}
	return d
}

// BenchmarkChange is a change of one block in a cluster of 5,000 nodes, each with two blocks and an address of each
// family.
func BenchmarkChange(b *testing.B) {
	w := newWorld(b)
	d := w.large(5000)
	begin := time.Now()
	must(b, w.table.Apply(d))
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms-first")
	less := d
	less.Inside = slices.Delete(slices.Clone(d.Inside), 9000, 9001)
	for i := 0; b.Loop(); i++ {
		must(b, w.table.Apply([]masquerade.Desired{less, d}[i%2]))
	}
	begin = time.Now()
	must(b, w.newTable(b, masquerade.Config{Families: masquerade.Both}).Apply(w.large(5000)))
	b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms-compare")
}

// One block more or less is a few notifications of the kernel's, not a rewrite of the set.
func TestApplyWritesDifference(t *testing.T) {
	w := newWorld(t)
	d := w.large(500)
	must(t, w.table.Apply(d))
	for _, inside := range [][]netip.Prefix{slices.Delete(slices.Clone(d.Inside), 900, 901), d.Inside} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var notifications <-chan syscall.NetlinkMessage
		must(t, w.node.Do(func() (err error) {
			notifications, err = nl.Watch(ctx, unix.NETLINK_NETFILTER, 7) // NFNLGRP_NFTABLES
			return err
		}))
		must(t, w.table.Apply(masquerade.Desired{Sources: d.Sources, Inside: inside}))
		changed := 0
		for m := range notifications {
			if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
				cancel() // the end of the transaction
			} else {
				changed++
			}
		}
		if changed != 2 { // both ends of a range
			t.Errorf("the kernel tells of %d changes, want 2", changed)
		}
	}
}

func TestConfigResolved(t *testing.T) {
	for _, row := range []struct {
		families   string
		knowsNodes bool
		want       string
	}{
		{masquerade.Auto, true, masquerade.Both}, {masquerade.Auto, false, masquerade.None}, {masquerade.IPv6, false, masquerade.IPv6}, {masquerade.None, true, masquerade.None},
	} {
		if got := (masquerade.Config{Families: row.families}).Resolved(row.knowsNodes).Families; got != row.want {
			t.Errorf("%s, knows the nodes %v: %s, want %s", row.families, row.knowsNodes, got, row.want)
		}
	}
}
