package main

import (
	"context"

	"github.com/spf13/pflag"
)

// command is a line of the table that the tree of cobra commands is made from.
type command struct {
	name      string // "endpoint list"
	args      string // what it takes, for people; each word is one argument
	short     string // one line
	long      string // more, for its own help
	flags     func(*pflag.FlagSet, *options)
	arguments candidates          // of its argument, for completion
	unbounded func(*session) bool // whether --timeout does not hold; nil: it does
	hidden    bool                // only other commands run it
	records   bool                // it is a command of "porin cluster", too, on the records at the API server
	run       func(context.Context, *session, []string) error
}

// always is for commands that --timeout never holds for.
func always(*session) bool { return true }

// commands is the table.
func commands() []command {
	list := []command{
		{name: "status", short: "show how the agent is", flags: statusFlags, run: status,
			long: "A resource is what attaching a container needs: while one is lacking, ADD fails. STATUS fails only when\nwaiting does not help, as when the ledger cannot be written. " +
				"In multi-pool it says what this node knows of a\nrecovery and of blocks in conflict. A cell is degraded when a part of it does not work, and failing when a\n" +
				"restart may help. The exit code is 1 when the agent answers and is not ready."},
		{name: "endpoint list", short: "list the endpoints of this node", flags: networkFlag, run: endpointList},
		{name: "endpoint get", args: "REF", short: "show one endpoint, its traffic and its drops", long: aboutRefs,
			arguments: endpointRefs, run: endpointGet},
		{name: "endpoint label", args: "REF LABEL...", short: "change the labels of a pod or of its namespace, for policies", flags: labelFlags,
			arguments: endpointRefs, run: endpointLabel, long: aboutLabel},
		{name: "endpoint delete", args: "REF", short: "take an endpoint down and free its addresses", long: aboutDelete, flags: deleteFlags,
			arguments: endpointRefs, run: endpointDelete},
		{name: "ipam list", short: "show the pools and the addresses in use", run: ipamList, long: aboutList},
		{name: "ipam check", short: "compare who has which address with the cluster's store and the kernel", flags: repairFlag,
			run: ipamCheck, long: aboutCheck},
		{name: "ipam reserve", args: "[ADDRESS...]", short: "keep addresses for a user that is no endpoint", flags: reserveFlags,
			run: ipamReserve, long: aboutReserve},
		{name: "ipam release", args: "ADDRESS", short: "end the reservation of an address", flags: releaseFlags,
			arguments: reservedAddresses, run: ipamRelease, long: aboutRelease},
		{name: "ipam recover", records: true, short: "show, begin or end the recovery after the cluster's store was restored", flags: recoverFlags,
			run: ipamRecover, long: aboutRecover},
		{name: "node list", records: true, short: "list the nodes of the cluster, and how many blocks they have", run: nodeList, long: aboutNodes},
		{name: "node peers", short: "list the other nodes, and how this one reaches their pods", run: nodePeers, long: aboutPeers},
		{name: "node delete", records: true, args: "NAME", short: "delete a node, so that others can claim its blocks", flags: nodeDeleteFlags,
			arguments: nodeNames, run: nodeDelete, long: aboutNodeDelete, unbounded: always},
		{name: "node reset", records: true, args: "NAME", short: "end the contest of two machines for one node's key", flags: incarnationFlag,
			arguments: nodeNames, run: nodeReset, long: aboutNodeReset},
		{name: "pool list", records: true, short: "list the pools of the cluster, and how full they are", run: poolList, long: aboutPoolUse},
		{name: "pool get", records: true, args: "NAME", short: "show one pool, and how full it is", arguments: poolNames, run: poolGet, long: aboutPoolUse},
		{name: "pool create", records: true, args: "NAME", short: "make a pool of the cluster", flags: createFlags, run: poolCreate, long: aboutPoolCreate},
		{name: "pool set", records: true, args: "NAME", short: "change some settings of a pool: the others stay", flags: setFlags, arguments: poolNames, run: poolSet,
			long: aboutPoolSet},
		{name: "pool delete", records: true, args: "NAME", short: "delete a pool that is not in use", long: aboutPoolDelete,
			arguments: poolNames, run: poolDelete},
		{name: "policy apply", short: "set the network policies of a file: all of them, or none", flags: applyFlags, run: policyApply, long: aboutPolicyApply},
		{name: "policy list", short: "list the network policies in the order of their evaluation", run: policyList, long: aboutPolicyList},
		{name: "policy get", args: "REF", short: "show one network policy; its manifest with -o json", arguments: policyNames, run: policyGet, long: aboutPolicyRefs},
		{name: "policy delete", args: "REF", short: "end a network policy", arguments: policyNames, run: policyDelete, long: aboutPolicyRefs},
		{name: "policy diff", short: "say which of the connections seen lately proposed policies would decide otherwise", flags: diffFlags, run: policyDiff, long: aboutPolicyDiff},
		{name: "policy explain", short: "show the policies' verdict on a connection, and the rule", flags: explainFlags, run: policyExplain,
			long: aboutPolicyExplain},
		{name: "monitor", short: "show opened connections and dropped packets, with the deciding rules", flags: monitorFlags, run: monitor,
			long: aboutMonitor, unbounded: func(s *session) bool { return s.follow }},
		{name: "health", short: "show which other nodes this one reaches, and what is at fault", flags: healthFlags, run: healthCommand, long: aboutHealth},
		{name: "doctor", short: "show where the agent, its records and the kernel disagree", flags: doctorFlags, run: doctorCommand,
			long: aboutDoctor},
		{name: "restore accept", args: "[ENDPOINT]", short: "remove what the agent's start could not explain and holds", long: aboutAccept,
			arguments: heldEndpoints, run: restoreAccept},
		{name: "controller run", args: "NAME", short: "have a loop of the agent do its next round now", arguments: controllerNames, run: controllerRun},
		{name: "trace", args: "[REF]", short: "show the durations of the phases of the latest operations", long: aboutTrace,
			arguments: traceRefs, run: trace},
		{name: "gc", short: "delete the attachments of a network that are not valid", flags: gcFlags, run: gc, long: aboutGC},
		{name: "events", short: "show what the agent did, and what it does", flags: eventFlags, run: events, long: aboutEvents,
			unbounded: func(s *session) bool { return s.follow }},
		{name: "bpf", short: "show what is loaded and attached in the kernel", flags: bpfFlags, run: bpf, long: aboutBPF},
		{name: "cluster status", short: "show how the agents of the cluster are, and what is wrong on which nodes", flags: clusterFlags(clusterStatusFlags),
			run: clusterStatusCommand, long: aboutClusterStatus, unbounded: always},
		{name: "cluster health", short: "show which nodes do not reach which others, and what is at fault", flags: clusterFlags(nil),
			run: clusterHealthCommand, long: aboutClusterHealth, unbounded: always},
		{name: "cluster doctor", short: "show where agents, their records and their kernels disagree", flags: clusterFlags(nil),
			run: clusterDoctorCommand, long: aboutClusterDoctor, unbounded: always},
		{name: "cluster monitor", short: "show the flows of all nodes in one stream", flags: clusterFlags(flowFlags), run: clusterMonitor,
			long: aboutClusterMonitor, unbounded: always},
		{name: "cluster policy explain", short: "show the policies' verdict on a connection, of both nodes", flags: clusterFlags(explainFlags),
			run: clusterExplain, long: aboutPolicyExplain},
		{name: "cluster policy diff", short: "say which connections seen by all nodes proposed policies would decide otherwise",
			flags: clusterFlags(diffFlags), run: clusterDiffCommand, long: aboutClusterDiff, unbounded: always},
		{name: "cluster sysdump", args: "FILE", short: "write an archive of all nodes, for support", flags: clusterFlags(nil),
			run: clusterSysdump, long: aboutClusterSysdump, unbounded: always},
		{name: "cluster connectivity", short: "test the paths between nodes, pods and Services with pods of its own", flags: clusterFlags(connectivityFlags),
			run: clusterConnectivity, long: aboutConnectivity, unbounded: always},
		{name: "cluster node gc", short: "delete the records of nodes whose Kubernetes Node is gone", flags: kubeconfigFlags(nodeGCFlags),
			run: nodeGC, long: aboutNodeGC, unbounded: always},
		{name: "connectivity serve", short: "answer probes", flags: serveFlags, run: connectivityServe, hidden: true, unbounded: always},
		{name: "connectivity probe", short: "run the probes of stdin", run: connectivityProbe, hidden: true, unbounded: always},
		{name: "sysdump", args: "FILE", short: "write an archive of this node, for support", run: sysdump, long: aboutSysdump},
		{name: "version", short: "print the version of this program", run: showVersion},
	}
	return append(list, ofRecords(list)...)
}
