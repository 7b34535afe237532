package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/api/v1/client"
)

// flowOptions say which flows to show.
type flowOptions struct {
	client.FlowOptions
	since string // a seq, or an age
}

// untilEOF is a flag for the porin monitor that porin cluster monitor starts: a runtime does not end a command when its
// client leaves.
const untilEOF = "until-stdin-ends"

func monitorFlags(fs *pflag.FlagSet, o *options) {
	flowFlags(fs, o)
	fs.BoolVar(&o.untilEOF, untilEOF, false, "end with stdin: of porin cluster monitor, whose connection to this container may be lost")
	_ = fs.MarkHidden(untilEOF) // there is such a flag
	fs.Lookup("since").Usage = "only flows of this `time`, such as 5m, or after this seq"
}

func flowFlags(fs *pflag.FlagSet, o *options) {
	f := &o.flows
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what happens, until interrupted")
	fs.StringVar(&f.since, "since", "", "only flows of this `time`, such as 5m")
	fs.UintVar(&f.Last, "last", 0, "begin with this `number` of flows that there are")
	fs.StringSliceVarP(&f.Namespaces, "namespace", "n", nil, "only flows from or to pods of these `namespaces`, comma separated")
	fs.StringVar(&f.Pod, "pod", "", "only flows from or to this `pod` (NAMESPACE/NAME)")
	fs.StringVarP(&f.Label, "label", "l", "", "only flows from or to pods with labels of this `selector`, such as app=web")
	fs.StringVar(&f.Name, "name", "", "only flows to this `name` of DNS, and requests to or for it; *.example.com is any name below")
	fs.StringVar(&f.Direction, "direction", "", "only flows seen at their sender's end, or their receiver's: `egress` or ingress")
	fs.StringVar(&f.Policy, "policy", "", "only flows that a rule of this `policy` has decided (NAMESPACE/NAME, or NAME)")
	fs.StringSliceVar(&f.Verdicts, "verdict", nil, "only these `verdicts`, comma separated: allowed, audit, denied, dropped")
	fs.StringSliceVar(&f.Reasons, "reason", nil, "only packets dropped for these `reasons`, comma separated, such as policy-ingress")
	fs.StringVar(&f.Protocol, "protocol", "", "only this `protocol`: tcp, udp, sctp, icmp, icmpv6 or a number; http or dns for requests through the proxy")
	fs.Uint16Var(&f.Port, "port", 0, "only this `port` of the destination, or of the Service")
	fs.StringArrayVar(&f.Not, "not", nil, "no flows that this `filter` chooses, FLAG=VALUE such as namespace=kube-system; may be given several times")
}

// client returns the options of the agent's API.
func (f flowOptions) client(follow bool) (client.FlowOptions, error) {
	o := f.FlowOptions
	o.Follow = follow
	if f.since == "" {
		return o, nil
	}
	var err error
	if o.Since, err = strconv.ParseUint(f.since, 10, 64); err == nil {
		return o, nil
	}
	if o.Age, err = time.ParseDuration(f.since); err != nil || o.Age <= 0 {
		return o, usageOf([]string{"monitor"}, fmt.Sprintf("--since %q: want a time, such as 5m, or the seq of a flow", f.since))
	}
	return o, nil
}

// monitorArguments are for the porin monitor of an agent.
func monitorArguments(o client.FlowOptions) []string {
	args := []string{"monitor"}
	query := o.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		switch name {
		case "follow":
			args = append(args, "--follow", "--"+untilEOF)
			continue
		case "age":
			name = "since"
		}
		for _, value := range values {
			args = append(args, "--"+name, value)
		}
	}
	return args
}
