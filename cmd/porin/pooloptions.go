package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	v1 "porin.dev/porin/api/v1"
)

// poolOptions are the options of pool create and pool set. Settings that are not given stay.
type poolOptions struct {
	set                    *pflag.FlagSet
	prefixes, exclude      []string
	ipv4Block, ipv6Block   int
	labels, namespaces     []string
	disabled, reuseResting bool
	quarantine             time.Duration
}

// anyGiven reports whether any of them was given.
func (p poolOptions) anyGiven() bool {
	names := []string{"prefix", "exclude", "ipv4-block", "ipv6-block", "node-label", "allowed-namespace", "disabled", "quarantine", "reuse-resting"}
	return slices.ContainsFunc(names, p.set.Changed)
}

func createFlags(fs *pflag.FlagSet, o *options) {
	p := &o.pool
	p.set = fs
	fs.StringSliceVar(&p.prefixes, "prefix", nil, "`CIDRs` of the pool, of one or both families, comma separated or repeated")
	fs.StringSliceVar(&p.exclude, "exclude", nil, "`CIDRs` or addresses of the pool that are not given out, comma separated or repeated")
	fs.IntVar(&p.ipv4Block, "ipv4-block", 26, "prefix `length` of an IPv4 block, which stays as it is")
	fs.IntVar(&p.ipv6Block, "ipv6-block", 122, "prefix `length` of an IPv6 block, which stays as it is")
	fs.StringSliceVar(&p.labels, "node-label", nil, "`LABEL=VALUE` that a node must have to claim blocks, comma separated or repeated")
	fs.StringSliceVar(&p.namespaces, "allowed-namespace", nil, "`namespaces` of the pods that may have addresses; none is all")
	fs.BoolVar(&p.disabled, "disabled", false, "claim nothing, and give nothing out")
	fs.DurationVar(&p.quarantine, "quarantine", 30*time.Second, "`time` that a released address rests, 20m at the most; 0s for none")
	fs.BoolVar(&p.reuseResting, "reuse-resting", false, "give out the address that rests longest when nothing else is free")
}

// setFlags have no defaults: settings that are not given stay.
func setFlags(fs *pflag.FlagSet, o *options) {
	p := &o.pool
	p.set = fs
	fs.StringSliceVar(&p.prefixes, "prefix", nil, "all `CIDRs` of the pool, comma separated or repeated; a CIDR that is left out is drained")
	fs.StringSliceVar(&p.exclude, "exclude", nil, "all `CIDRs` or addresses of the pool that are no longer given out; --exclude= for none")
	fs.IntVar(&p.ipv4Block, "ipv4-block", 0, "prefix `length` of an IPv4 block; another one than it is, is refused")
	fs.IntVar(&p.ipv6Block, "ipv6-block", 0, "the same of an IPv6 block, with its `length`")
	fs.StringSliceVar(&p.labels, "node-label", nil, "all `LABEL=VALUE` that a node must have to claim blocks; --node-label= for any node")
	fs.StringSliceVar(&p.namespaces, "allowed-namespace", nil, "all `namespaces` of the pods that may have addresses; --allowed-namespace= for any")
	fs.BoolVar(&p.disabled, "disabled", false, "claim nothing, and give nothing more out; --disabled=false ends that")
	fs.DurationVar(&p.quarantine, "quarantine", 0, "`time` that a released address rests, 20m at the most; 0s for none")
	fs.BoolVar(&p.reuseResting, "reuse-resting", false, "give out the address that rests longest when nothing else is free; --reuse-resting=false does not")
}

// applyTo sets what was given.
func (f poolOptions) applyTo(p *v1.PoolSpec) error {
	if f.set.Changed("prefix") {
		p.Prefixes = nil
		for _, text := range f.prefixes {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("--prefix %q: want a prefix, such as 10.244.0.0/16", text)
			}
			p.Prefixes = append(p.Prefixes, prefix)
		}
	}
	if f.set.Changed("exclude") {
		p.Exclude = nil
		for _, text := range f.exclude {
			prefix, err := parseRange(text)
			if err != nil {
				return fmt.Errorf("--exclude %q: want a prefix or an address, such as 10.244.0.0/28", text)
			}
			p.Exclude = append(p.Exclude, prefix)
		}
	}
	for name, to := range map[string]struct {
		from int
		to   *int
	}{"ipv4-block": {f.ipv4Block, &p.IPv4BlockBits}, "ipv6-block": {f.ipv6Block, &p.IPv6BlockBits}} {
		if f.set.Changed(name) {
			*to.to = to.from
		}
	}
	if f.set.Changed("node-label") {
		p.NodeSelector = map[string]string{}
		for _, label := range f.labels {
			key, value, ok := strings.Cut(label, "=")
			if !ok {
				return fmt.Errorf("--node-label %q: want LABEL=VALUE", label)
			}
			p.NodeSelector[key] = value
		}
	}
	if f.set.Changed("allowed-namespace") {
		p.AllowedNamespaces = f.namespaces
	}
	if f.set.Changed("disabled") {
		p.Disabled = f.disabled
	}
	if f.set.Changed("quarantine") {
		p.Quarantine = &f.quarantine
	}
	if f.set.Changed("reuse-resting") {
		p.ReuseResting = f.reuseResting
	}
	return nil
}

// parseRange takes an address for the prefix of itself alone.
func parseRange(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(text)
}
