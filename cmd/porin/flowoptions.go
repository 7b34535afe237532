package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/api/v1/client"
)

// flowOptions say which flows to show.
type flowOptions struct {
	since             string // a seq, or an age
	last              uint
	not               []string
	namespaces        []string
	pod, label        string
	name              string
	direction, policy string
	verdicts, reasons []string
	protocol          string
	port              uint16
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
	fs.UintVar(&f.last, "last", 0, "begin with this `number` of flows that there are")
	fs.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only flows from or to pods of these `namespaces`, comma separated")
	fs.StringVar(&f.pod, "pod", "", "only flows from or to this `pod` (NAMESPACE/NAME)")
	fs.StringVarP(&f.label, "label", "l", "", "only flows from or to pods with labels of this `selector`, such as app=web")
	fs.StringVar(&f.name, "name", "", "only flows to this `name` of DNS, and requests to or for it; *.example.com is any name below")
	fs.StringVar(&f.direction, "direction", "", "only flows seen at their sender's end, or their receiver's: `egress` or ingress")
	fs.StringVar(&f.policy, "policy", "", "only flows that a rule of this `policy` has decided (NAMESPACE/NAME, or NAME)")
	fs.StringSliceVar(&f.verdicts, "verdict", nil, "only these `verdicts`, comma separated: allowed, audit, denied, dropped")
	fs.StringSliceVar(&f.reasons, "reason", nil, "only packets dropped for these `reasons`, comma separated, such as policy-ingress")
	fs.StringVar(&f.protocol, "protocol", "", "only this `protocol`: tcp, udp, sctp, icmp, icmpv6 or a number; http or dns for requests through the proxy")
	fs.Uint16Var(&f.port, "port", 0, "only this `port` of the destination, or of the Service")
	fs.StringArrayVar(&f.not, "not", nil, "no flows that this `filter` chooses, FLAG=VALUE such as namespace=kube-system; may be given several times")
}

// client returns the options of the agent's API.
func (f flowOptions) client(follow bool) (client.FlowOptions, error) {
	o := client.FlowOptions{
		Follow: follow, Last: int(f.last), Not: f.not, Namespaces: f.namespaces, Pod: f.pod, Label: f.label, Name: f.name, Direction: f.direction,
		Policy: f.policy, Verdicts: f.verdicts, Reasons: f.reasons, Protocol: f.protocol, Port: f.port,
	}
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

// arguments are for the porin monitor of an agent.
func (f flowOptions) arguments(follow bool) []string {
	args := []string{"monitor"}
	if follow {
		args = append(args, "--follow", "--"+untilEOF)
	}
	for _, flag := range []struct{ name, value string }{
		{"since", f.since}, {"namespace", strings.Join(f.namespaces, ",")}, {"pod", f.pod}, {"label", f.label}, {"name", f.name},
		{"direction", f.direction}, {"policy", f.policy}, {"verdict", strings.Join(f.verdicts, ",")}, {"reason", strings.Join(f.reasons, ",")},
		{"protocol", f.protocol}, {"port", notZero(uint64(f.port))}, {"last", notZero(uint64(f.last))},
	} {
		if flag.value != "" {
			args = append(args, "--"+flag.name, flag.value)
		}
	}
	for _, text := range f.not {
		args = append(args, "--not", text)
	}
	return args
}

// notZero is "" for 0.
func notZero(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
