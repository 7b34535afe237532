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

// poolOptions are those of pool create and pool set. What is not given is left as it is.
type poolOptions struct {
	set                    *pflag.FlagSet
	prefixes               []string
	ipv4Block, ipv6Block   int
	labels                 []string
	disabled, reuseResting bool
	quarantine             time.Duration
}

// given tells whether any of them was given.
func (p poolOptions) given() bool {
	names := []string{"prefix", "ipv4-block", "ipv6-block", "node-label", "disabled", "quarantine", "reuse-resting"}
	return slices.ContainsFunc(names, p.set.Changed)
}

func createFlags(fs *pflag.FlagSet, o *options) {
	p := &o.pool
	p.set = fs
	fs.StringSliceVar(&p.prefixes, "prefix", nil, "`CIDRs` of the pool, of one or both families, comma separated or repeated")
	fs.IntVar(&p.ipv4Block, "ipv4-block", 26, "prefix `length` of an IPv4 block, which stays as it is")
	fs.IntVar(&p.ipv6Block, "ipv6-block", 122, "prefix `length` of an IPv6 block, which stays as it is")
	fs.StringSliceVar(&p.labels, "node-label", nil, "`LABEL=VALUE` that a node must have to claim blocks, comma separated or repeated")
	fs.BoolVar(&p.disabled, "disabled", false, "claim nothing, and give nothing out")
	fs.DurationVar(&p.quarantine, "quarantine", 30*time.Second, "`time` that a released address rests, 20m at the most")
	fs.BoolVar(&p.reuseResting, "reuse-resting", false, "give out the address that rests longest when nothing else is free")
}

// setFlags have no defaults: what is not given stays.
func setFlags(fs *pflag.FlagSet, o *options) {
	p := &o.pool
	p.set = fs
	fs.StringSliceVar(&p.prefixes, "prefix", nil, "all `CIDRs` of the pool, comma separated or repeated; one that is left out is drained")
	fs.IntVar(&p.ipv4Block, "ipv4-block", 0, "prefix `length` of an IPv4 block; another one than it is, is refused")
	fs.IntVar(&p.ipv6Block, "ipv6-block", 0, "the same of an IPv6 block, with its `length`")
	fs.StringSliceVar(&p.labels, "node-label", nil, "all `LABEL=VALUE` that a node must have to claim blocks; --node-label= for any node")
	fs.BoolVar(&p.disabled, "disabled", false, "claim nothing, and give nothing more out; --disabled=false ends that")
	fs.DurationVar(&p.quarantine, "quarantine", 0, "`time` that a released address rests, 20m at the most")
	fs.BoolVar(&p.reuseResting, "reuse-resting", false, "give out the address that rests longest when nothing else is free; --reuse-resting=false does not")
}

// onto sets what was given.
func (f poolOptions) onto(p *v1.PoolSpec) error {
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
	if f.set.Changed("disabled") {
		p.Disabled = f.disabled
	}
	if f.set.Changed("quarantine") {
		if f.quarantine <= 0 { // the API takes zero for what is left out
			return fmt.Errorf("--quarantine %s: want a time above zero, 20m at the most", f.quarantine)
		}
		p.Quarantine = f.quarantine
	}
	if f.set.Changed("reuse-resting") {
		p.ReuseResting = f.reuseResting
	}
	return nil
}
