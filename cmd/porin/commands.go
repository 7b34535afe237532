package main

import (
	"context"
	"strings"

	"github.com/spf13/pflag"
)

// command is one thing that porin does. The table of them drives dispatch, help and completion.
type command struct {
	name      string // "endpoint list"
	args      string // what it takes, for people; each word is one argument
	short     string // one line
	long      string // more, for its own help
	flags     func(*pflag.FlagSet, *options)
	arguments func(context.Context, *session) []candidate // what its argument may be, for completion
	unbounded func(*session) bool                         // whether --timeout does not hold; nil: it does
	run       func(context.Context, *session, []string) error
}

// commands is the table.
func commands() []command {
	return []command{
		{name: "status", short: "show how the agent is", run: status,
			long: "A resource is what attaching a container needs: while one is lacking, ADD fails. STATUS fails only when the ledger cannot be\nwritten. " +
				"The exit code is 1 when the agent answers and is not ready."},
		{name: "endpoint list", short: "list the endpoints of this node", flags: networkFlag, run: endpointList},
		{name: "endpoint get", args: "REF", short: "show one endpoint, its traffic and its drops", long: aboutRefs,
			arguments: endpointRefs, run: endpointGet},
		{name: "endpoint delete", args: "REF", short: "take an endpoint down and free its addresses", long: aboutDelete,
			arguments: endpointRefs, run: endpointDelete},
		{name: "ipam list", short: "show the pools and the addresses in use", run: ipamList, long: aboutList},
		{name: "ipam check", short: "compare who has which address with the cluster's store and the kernel", flags: repairFlag,
			run: ipamCheck, long: aboutCheck},
		{name: "ipam reserve", args: "[ADDRESS...]", short: "keep addresses for somebody who is no endpoint", flags: reserveFlags,
			run: ipamReserve, long: aboutReserve},
		{name: "ipam release", args: "ADDRESS", short: "end the reservation of an address", flags: releaseFlags,
			arguments: reservedAddresses, run: ipamRelease, long: aboutRelease},
		{name: "ipam recover", short: "show, or begin, the recovery after the cluster's store was restored", flags: recoverFlags,
			run: ipamRecover, long: aboutRecover},
		{name: "node list", short: "list the nodes of the cluster, and how many blocks they have", run: nodeList, long: aboutNodes},
		{name: "node delete", args: "NAME", short: "delete a node, so that others can claim its blocks", flags: nodeDeleteFlags,
			arguments: nodeNames, run: nodeDelete, long: aboutNodeDelete, unbounded: func(*session) bool { return true }},
		{name: "node reset", args: "NAME", short: "end the contest of two machines for one node's key", flags: incarnationFlag,
			arguments: nodeNames, run: nodeReset, long: aboutNodeReset},
		{name: "pool list", short: "list the pools of the cluster, and how full they are", run: poolList, long: aboutPoolUse},
		{name: "pool get", args: "NAME", short: "show one pool, and how full it is", arguments: poolNames, run: poolGet, long: aboutPoolUse},
		{name: "pool create", args: "NAME", short: "make a pool of the cluster", flags: createFlags, run: poolCreate, long: aboutPoolCreate},
		{name: "pool set", args: "NAME", short: "change a pool: what is not given stays", flags: setFlags, arguments: poolNames, run: poolSet,
			long: aboutPoolSet},
		{name: "pool delete", args: "NAME", short: "delete a pool of which nothing is in use", long: aboutPoolDelete,
			arguments: poolNames, run: poolDelete},
		{name: "doctor", short: "show where the agent, its records and the kernel disagree", flags: doctorFlags, run: examine,
			long: aboutDoctor},
		{name: "restore accept", args: "[ENDPOINT]", short: "remove what the agent's start could not explain and holds", long: aboutAccept,
			arguments: heldEndpoints, run: restoreAccept},
		{name: "trace", args: "[REF]", short: "show what the phases of the latest operations took", long: aboutTrace,
			arguments: tracedRefs, run: trace},
		{name: "gc", short: "delete the attachments of a network that are not valid", flags: gcFlags, run: gc, long: aboutGC},
		{name: "events", short: "show what the agent did, and what it does", flags: eventFlags, run: events, long: aboutEvents,
			unbounded: func(s *session) bool { return s.follow }},
		{name: "bpf", short: "show what is loaded and attached in the kernel", flags: bpfFlags, run: bpf, long: aboutBPF},
		{name: "completion", args: "SHELL", short: "print the completion script of bash, zsh or fish", long: aboutCompletion,
			arguments: shellNames, run: completionScript},
		{name: "version", short: "print the version of this program", run: showVersion},
		{name: "help", args: "[COMMAND...]", short: "show help, also of one command", run: helpCommand},
	}
}

const aboutRefs = `REF is a number, or one of
  container-id:ID    cni-attachment-id:ID:INTERFACE    pod-name:NAMESPACE/NAME
  ipv4:ADDRESS       ipv6:ADDRESS`

const aboutDelete = aboutRefs + `
container-id: takes down every endpoint of the container; one that is not known is a success.
The exit code is 1 when a part could not be taken down yet: the agent tries again.`

const aboutDoctor = `Asking examines, and counts as a look: what two looks in a row find, a second apart or more, the agent repairs,
unless it runs with --doctor-repair=false. A finding that was found once may be a passing state. With --repair the agent
looks twice itself, repairs what both looks have found, however it runs, and looks again.
The exit code is 1 when something disagrees, or could not be examined.`

const aboutAccept = `A start that finds more than four attachments unexplained, and more than half of all, holds them: their links are gone though
the ledger has them, or their links are there and the ledger does not have them. It neither brings them back nor removes
them, and gives their addresses to nobody. "porin status" lists them. A DEL or a newer ADD of the pod ends the hold of one;
this ends that of ENDPOINT (CONTAINERID:INTERFACE), or of all: links and records are removed, and addresses come free. A
container that still runs is cut off.`

const aboutList = `ENDS IN is when what this node has of a pool is used up, if its use goes on growing as it does now.`

const aboutCheck = `It compares the addresses in use with the endpoints, the kernel's routes, neighbours and addresses, and the blocks of the
cluster's store with those that this node gives out from. It counts as a look of "porin doctor", which tells this too, but
for notes: what is as it may be, and worth knowing. With --repair it looks twice, a second apart, repairs what both looks
have found, and looks again: a finding that is left is one that a person has to repair, or a repair that failed.
It names the reservations of this node. Those of other nodes are on their disks: ask there.
The exit code is 1 when something disagrees, or could not be examined.`

const aboutReserve = `Without an ADDRESS it is one of each family of the pool; with one, that one. The token ends this reservation and no later one.
A reservation ends by itself unless it is permanent, and outlives the agent and the boot. A container takes it over by the token: PORIN_RESERVATION in CNI_ARGS.
That ends it, unless it is permanent: then it has its addresses again after the container's DEL, so that the next one with the token gets them.`

const aboutRelease = `Without --token whatever reservation there is ends. An endpoint that uses what is reserved permanently keeps it until its end.
What an endpoint uses otherwise is refused: delete that.
A released address rests for the pool's quarantine.`

const aboutPoolUse = `OWNED is how many blocks nodes own: a pool of which all are has room in these alone, of which "porin ipam list" shows
those of this node. NODES are the labels that a node must have to own some. NAMESPACES are those of the pods that may have
addresses, and nobody gets one that is EXCLUDED: blocks without any other do not count.`

const aboutPoolCreate = `For example: porin pool create blue --prefix 10.65.0.0/16,fd00:65::/64 --node-label zone=a
A node claims a block at a time: 64 addresses, unless the size is given. A container is given addresses of all the families
that the pool has. A pod of a namespace that is not allowed gets an error, whatever has chosen the pool for it.
A pool with fewer blocks than the cluster has nodes is warned of on stderr ("warnings" in JSON), unless it is for nodes with labels.`

const aboutPoolSet = `A prefix that is left out is drained: what is in use of it stays, and nothing more of it is given out. So it is with what is
excluded, and a pod whose namespace is not allowed any more keeps its addresses.`

const aboutPoolDelete = `A pool that nodes have blocks of is refused, and nothing changes: delete the pods that use it, and disable it. Nodes give a
block back a minute after its last address was released and has rested, or later if they often need one again.`

const aboutNodes = `A machine that is replaced under the same name is another incarnation, with another KEY. Nobody takes the blocks of a node
that is silent: delete it when its machine is gone.`

const aboutNodeDelete = `The node's agent must agree, which it does when the node has no block. Else it names what is reserved there, which no other
node knows: a block with a reservation stays. When the machine is gone, say --machine-is-off: then the agent is not asked, and
reservations are lost with the machine's disk. If it runs after all, addresses of its pods are given out a second time.
Its blocks are free at once; the command ends after the longest quarantine of their pools, and deletes claims that arrived late.
A node that waits for the answer to a claim that was lost does not agree for about ten minutes: try again then.`

const aboutNodeReset = `Two machines have one key when a disk was copied. Neither gives out addresses then. Remove the file node-key in the
--store-dir of the copy and restart its agent; then reset the node, so that the other one goes on.`

const aboutRecover = `After the cluster's store was restored from a backup, let only one node reach the store, whose kubelet is stopped so that it
claims nothing, run it with --begin on that node, then let the others reach the store. Agents notice a
restore by themselves only if one of them knows something newer than the backup. Until every node that the store or an agent
knows has confirmed its blocks, nobody claims any; addresses of blocks that are confirmed are given out. There is no time
limit: exclude a node that is gone, or delete it with "porin node delete --machine-is-off".
A node that is excluded although it runs may have addresses in use that are given out a second time.`

const aboutTrace = `REF is a container ID or its beginning, a pod (NAMESPACE/NAME), or what "porin endpoint get" takes. It shows all phases.
What is gone is shown too, as long as the agent keeps it: it keeps the latest operations only.`

const aboutGC = `An attachment is CONTAINERID:INTERFACE. Those of other networks are not touched, and none that begins after the call.
When many of the live attachments are not valid, the first call deletes nothing, and a second one in a row does.
The exit code is 1 when it was withheld, or when a part could not be taken down yet: the agent tries that again.`

const aboutEvents = `In JSON each event is a line of its own. The agent keeps the last events only: what is missing shows in seq.`

func (c command) endless(s *session) bool { return c.unbounded != nil && c.unbounded(s) }

// takes is the number of arguments: at least, and at most (-1: any).
func (c command) takes() (least, most int) {
	words := strings.Fields(c.args)
	for _, word := range words {
		switch {
		case strings.HasSuffix(word, "...]"):
			return least, -1
		case !strings.HasPrefix(word, "["):
			least++
		}
	}
	return least, len(words)
}

// find returns the command of that name.
func find(name string) (command, bool) {
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// below are the words that may follow those, in the order of the table; none when they are no group of commands.
func below(words []string) (next []string) {
	for _, c := range commands() {
		name := strings.Fields(c.name)
		if len(name) <= len(words) || strings.Join(name[:len(words)], " ") != strings.Join(words, " ") {
			continue
		}
		if word := name[len(words)]; len(next) == 0 || next[len(next)-1] != word {
			next = append(next, word)
		}
	}
	return next
}
