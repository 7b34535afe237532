package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	v1 "porin.dev/porin/api/v1"
)

// socketVariable is the environment's name for --socket.
const socketVariable = "PORIN_SOCKET"

// global are the values of the flags that every command takes.
type global struct {
	socket  string
	output  choice
	colour  choice
	timeout time.Duration
}

func newGlobal(getenv func(string) string) *global {
	g := &global{
		socket: v1.DefaultSocket, output: newChoice("table", "wide", "json"), colour: newChoice("auto", "always", "never"), timeout: 30 * time.Second,
	}
	if socket := getenv(socketVariable); socket != "" {
		g.socket = socket
	}
	return g
}

func (g *global) flags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&g.socket, "socket", g.socket, "`path` of the agent's socket; also from "+socketVariable)
	fs.VarP(&g.output, "output", "o", "`format` of the output: table, wide (monitor shows whole lines and labels) or json")
	fs.Var(&g.colour, "color", "`when` to colour tables: auto (on a terminal, without NO_COLOR), always or never")
	fs.DurationVar(&g.timeout, "timeout", g.timeout, "`time` to wait for the agent, or for the API server")
}

// options are the values of all flags.
type options struct {
	*global

	controllers bool     // status
	network     string   // endpoint list, gc
	ofNamespace bool     // endpoint label
	endpoint    string   // doctor
	repair      bool     // doctor, ipam check
	failing     bool     // health
	valid       []string // gc; nil when it is not given
	dryRun      bool     // gc, node gc, policy apply
	follow      bool     // events, monitor
	since       uint64   // events
	bpfRoot     string   // bpf
	pool        poolOptions

	poolName, owner, token string        // ipam reserve, ipam release
	expires                time.Duration // ipam reserve
	permanent              bool          // ipam reserve

	file     string   // policy apply, policy diff
	deleted  []string // policy diff
	from, to string   // policy explain
	protocol string   // policy explain
	port     uint16   // policy explain

	flows    flowOptions // monitor, cluster monitor
	untilEOF bool        // monitor

	incarnation  string // node delete, node reset
	machineIsOff bool   // node delete
	begin        bool   // ipam recover
	end          bool   // ipam recover
	force        bool   // ipam recover

	nodes, outside []string // cluster connectivity
	cleanup        bool     // cluster connectivity

	kubeconfig, kubeContext string        // administrator, cluster
	agentNamespace          string        // cluster
	wait                    time.Duration // node gc, cluster status
}

func networkFlag(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.network, "network", "", "only endpoints of this CNI `network`")
}

func deleteFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.force, "force", false, "end the endpoint also when a part of it cannot be taken down: the command lists what is given up")
}

func doctorFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.endpoint, "endpoint", "", "only what is about this `attachment` (CONTAINERID:INTERFACE); does not count as an examination")
	repairFlag(fs, o)
}

func repairFlag(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.repair, "repair", false, "examine twice, and repair now what both have found")
}

func healthFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.failing, "failing", false, "only the nodes that fail")
}

func reserveFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.poolName, "pool", "", "the `pool`; default when it is not given")
	fs.StringVar(&o.owner, "owner", "", "a `name` for who it is that has nothing yet; made up when it is not given")
	fs.DurationVar(&o.expires, "expires", defaultExpires, "`time` after which the reservation ends, an hour at the most")
	fs.BoolVar(&o.permanent, "permanent", false, "the reservation has no end")
}

func labelFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.ofNamespace, "of-namespace", false, "change the labels of the pod's namespace, for this endpoint only")
}

func releaseFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.token, "token", "", "the reservation's `token`: a later reservation is not touched")
}

func statusFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.controllers, "controllers", false, "show the loops of the agent, and what became of their last rounds")
}

func gcFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.network, "network", "", "the CNI `network` whose attachments are checked")
	fs.StringSliceVar(&o.valid, "valid", nil, "`attachments` that are to stay, comma separated; --valid= for none")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only show what would be deleted")
}

func incarnationFlag(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.incarnation, "incarnation", "", "the node's `key`, when its name has several incarnations")
}

func nodeDeleteFlags(fs *pflag.FlagSet, o *options) {
	incarnationFlag(fs, o)
	fs.BoolVar(&o.machineIsOff, "machine-is-off", false, "the machine is off and will not come back")
}

func nodeGCFlags(fs *pflag.FlagSet, o *options) {
	fs.DurationVar(&o.wait, "wait", 10*time.Minute, "`time` between the two rounds")
	fs.BoolVar(&o.dryRun, "dry-run", false, "only show what would be deleted")
}

func clusterStatusFlags(fs *pflag.FlagSet, o *options) {
	fs.DurationVar(&o.wait, "wait", 0, "`time` to wait until nothing is wrong")
}

func connectivityFlags(fs *pflag.FlagSet, o *options) {
	fs.StringSliceVar(&o.nodes, "nodes", nil, "only these `nodes`, comma separated; the first ten when it is not given")
	fs.StringSliceVar(&o.outside, "outside", nil, "`addresses` with ports outside of the cluster, comma separated, that pods of each node shall reach")
	fs.BoolVar(&o.cleanup, "cleanup", false, "only remove what an earlier test has left")
}

func serveFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.owner, "name", "", "the server's `name`")
}

func recoverFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVar(&o.begin, "begin", false, "the store is to be restored from a backup: no node claims a block until the end")
	fs.BoolVar(&o.end, "end", false, "nodes may claim blocks again; refused while nodes have not written theirs")
	fs.BoolVar(&o.force, "force", false, "with --end: end it although nodes have not written their blocks")
}

func applyFlags(fs *pflag.FlagSet, o *options) {
	manifestFlags(fs, o)
	fs.BoolVar(&o.dryRun, "dry-run", false, "check the policies, also whether they fit, and change nothing")
}

func manifestFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVarP(&o.file, "file", "f", "", "`file` of manifests, YAML or JSON; - is what comes in on stdin")
}

func diffFlags(fs *pflag.FlagSet, o *options) {
	manifestFlags(fs, o)
	fs.StringSliceVar(&o.deleted, "delete", nil, "`policies` as if they were deleted, comma separated: NAMESPACE/NAME, or KIND/NAME")
}

func explainFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.from, "from", "", "who begins: a `pod` (NAMESPACE/NAME) or an address")
	fs.StringVar(&o.to, "to", "", "the destination: a `pod` or an address")
	fs.Uint16Var(&o.port, "port", 0, "destination `port`")
	fs.StringVar(&o.protocol, "protocol", "tcp", "`protocol`: tcp, udp, sctp, icmp, icmpv6 or a number")
}

func bpfFlags(fs *pflag.FlagSet, o *options) {
	fs.StringVar(&o.bpfRoot, "bpf-root", "", "`folder` in which the agent pins programs and maps; asks the agent when it is not given")
}

func eventFlags(fs *pflag.FlagSet, o *options) {
	fs.BoolVarP(&o.follow, "follow", "f", false, "go on with what happens, until interrupted")
	fs.Uint64Var(&o.since, "since", 0, "only events after this `seq`")
}

// choice is a flag that takes one of a few values; the first is the default.
type choice struct {
	value string
	all   []string
}

func newChoice(all ...string) choice { return choice{all[0], all} }

// String is pflag.Value.
func (c *choice) String() string { return c.value }

// Type is pflag.Value.
func (c *choice) Type() string { return "string" }

// Set is pflag.Value.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.all, value) {
		last := len(c.all) - 1
		return fmt.Errorf("want %s or %s", strings.Join(c.all[:last], ", "), c.all[last])
	}
	c.value = value
	return nil
}
