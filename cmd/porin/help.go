package main

import "strings"

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// The longer help of commands.

const aboutRefs = `REF is a number, NAMESPACE/NAME of a pod, an address, or one of
  container-id:ID    cni-attachment-id:ID:INTERFACE    pod-name:NAMESPACE/NAME
  ipv4:ADDRESS       ipv6:ADDRESS`

const aboutLabel = aboutRefs + `
LABEL is KEY=VALUE, or KEY- to remove one, such as: porin endpoint label pod-name:demo/web app=web tier-
Other labels stay. When the command ends, the policies that follow are in the datapath. Of two changes of an endpoint's labels at
the same time, one may be lost.`

const aboutDelete = aboutRefs + `
A container that still runs is cut off, and nothing brings its network back: end it instead.
container-id: takes down every endpoint of the container; an unknown container is a success.
The exit code is 1 when a part could not be taken down yet: the agent tries again. With --force it gives up such parts and lists
them, and the addresses are free: end the container first, as its interface may be what is left.`

const aboutHealth = `NODE-ICMP is one of the node's own addresses, ENDPOINT its health endpoint: an endpoint as a pod's, which its agent answers for.
A cell is how long the last answer took, or for how long there was none. AT FAULT is what follows from that: node (off, or not
reached), tunnel, endpoint-path (the routes to its pods, or its datapath), policy (one protocol passes and another does not) or
responder (its agent). The exit code is 1 when a node or the node's own endpoint fails. NO_COLOR turns colours off.`

const aboutDoctor = `The command examines: what two examinations in a row find, a second apart or more, the agent repairs,
unless it runs with --doctor-repair=false. A finding that was found once may be a passing state. With --repair the agent
examines twice itself, repairs what both have found, whatever --doctor-repair says, and examines again.
The exit code is 1 when something disagrees, or could not be examined.`

const aboutAccept = `A start that finds more than four attachments unexplained, and more than half of all, holds them, and with a new ledger any: their links are gone though
the ledger has them, or their links are there and the ledger does not have them. It neither brings them back nor removes
them, and does not give out their addresses. "porin status" lists them. A DEL or a newer ADD of the pod ends the hold of one;
this ends the hold of ENDPOINT (CONTAINERID:INTERFACE as "porin status" prints it; a unique beginning of the container ID
suffices), or of all: links and records are removed, and addresses come free. A container that still runs is cut off.`

const aboutList = `OWNER is the pod, or whoever has reserved the address. The pool is "-" when it is not known: of an endpoint that the agent holds
and that its ledger does not have ("porin status"). "-o json" has the whole ID of the container.`

const aboutCheck = `It compares the addresses in use with the endpoints, the kernel's routes and addresses, and the blocks of the
cluster's store with the blocks that this node gives addresses from. It is the examination of "porin doctor", restricted to addresses.
With --repair it examines twice, a second apart, repairs what both have found, and examines again: a finding that is left is one
that a person has to repair, or a repair that failed.
The exit code is 1 when something disagrees, or could not be examined.`

const aboutReserve = `Without an ADDRESS it is one of each family of the pool; with one, that one. The token ends this reservation and no later one.
A reservation ends by itself unless it is permanent, and outlives the agent and the boot. A pod takes it over by the token: its annotation porin.dev/reservation, or PORIN_RESERVATION in CNI_ARGS.
That ends it, unless it is permanent: then it keeps its addresses, and one container after the other uses them by the token.`

const aboutRelease = `Without --token any reservation of the address ends. An address that an endpoint uses is refused, by a permanent
reservation, too: delete the endpoint first.
A released address rests for the pool's quarantine.`

const aboutPoolUse = `OWNED is the number of blocks that nodes own. When they own all, the pool has room in these blocks alone; "porin ipam list"
shows this node's. DRAINING is the number of blocks that nodes still have of addresses that were taken out of the pool, or excluded;
"porin pool get" names them, with their nodes. NODES are the labels that a node needs to own blocks. NAMESPACES are the pods'
namespaces that may have addresses. EXCLUDED addresses are not given out: blocks with only such addresses do not count.`

const aboutPoolCreate = `For example: porin pool create blue --prefix 10.65.0.0/16,fd00:65::/64 --node-label zone=a
A node claims a block at a time: 64 addresses, unless the size is given. A container is given addresses of all the families
that the pool has. A pod of a namespace that is not allowed gets an error, whatever has chosen the pool for it.
A pool with fewer blocks than the cluster has nodes is warned of on stderr ("warnings" in JSON), unless it is for nodes with labels.`

const aboutPoolSet = `A prefix that is left out is drained: its addresses in use stay, and no more are given out; "porin pool
get" shows the blocks of it that are left. So it is with what is excluded, and a pod whose namespace is not allowed any more
keeps its addresses.`

const aboutPoolDelete = `A pool that nodes have blocks of is refused, and nothing changes: disable it, delete the pods that use it, and end the
reservations of its addresses. Those are on the nodes' disks: "porin ipam list" shows them, and "porin ipam release" ends them,
on the node alone. Nodes give a block back a minute after its last address was released and has rested, or later if they often
need one again.`

const aboutNodes = `A machine that is replaced under the same name is another incarnation, with another KEY. Nobody takes the blocks of a node
that is silent: delete it when its machine is gone.`

const aboutPeers = `This is what the agent knows; the store is not asked. REACH says how pods of this node reach the block: route (a route by the
node's address), tunnel (one between the two nodes), external (the network between the nodes knows it), off-link (left to the network: the node is not on a link of this
one), or no-family (not at all: the node has no address of the family).`

const aboutNodeDelete = `To remove a node, stop its machine and use --machine-is-off; reservations are lost with the machine's disk. If the machine runs
after all, addresses of its pods are given out a second time. Without the flag only what is left of a node can be deleted that
was deleted before.
It is refused while another node uses addresses of its blocks, as the machine itself does after its --store-dir was lost: delete
those pods, or begin a recovery, in which no other node can claim the blocks, and delete the node then.
Its blocks are free at once; the command ends after the longest quarantine of their pools, and deletes claims that arrived late.`

const aboutNodeGC = `It makes two rounds with --wait between them, and deletes as "porin node delete --machine-is-off" does what both find to be gone, unless records of the
node have changed meanwhile: a node is gone when the API server has no Node with its name and UID.
While there is no Node of the name, the records stay as long as a pod is bound to it. When the Node was created again, they stay
until an agent has written the new UID under another key. An agent that goes on under the same key writes it to these records.
Records without a UID are judged by the name alone. In a recovery nothing is deleted.
Delete a Node only when its machine is off, or its pods have ended: their addresses are given to others.
The exit code is 1 when a node could not be deleted.`

const aboutNodeReset = `Two machines have one key when a disk was copied. Neither gives out addresses then. Remove the file node-key in the
--store-dir of the copy and restart its agent; then reset the node, so that the other one goes on.`

const aboutRecover = `A recovery is a mark in the cluster's store. While it stands no node claims a block, and every node creates again the claims
of its own blocks that the store has lost; it gives out the addresses of these. Set it with --begin, on a node, before the store is restored
from a backup, and wait until every node has written its blocks: then each node knows of the recovery, and sets the mark again
in the restored store. When the store does not answer, run --begin on every node: each notes it on its disk. A node sets the
mark by itself when records of its own are gone or older than its last write, or the store is of an earlier time than the node
has seen.
Only --end takes the mark away. It is refused while nodes have not written their blocks since, and names them: delete those
that are gone with "porin node delete --machine-is-off". With --force it ends the recovery all the same: then addresses that
are in use on such a node can be given out a second time. A node that registered after the backup is listed once its agent
reaches the store: make sure that every node of the cluster has written.`

const aboutPolicyApply = `For example: porin policy apply -f policies.yaml
FILE has Kubernetes manifests: NetworkPolicy (networking.k8s.io/v1), ClusterNetworkPolicy (policy.networking.k8s.io/v1alpha2),
AdminNetworkPolicy and BaselineAdminNetworkPolicy (v1alpha1), CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy (cilium.io/v2,
layers 3 and 4, and rules for HTTP and DNS), or a List of these. Policies that it does not name stay. They are in force when the command ends, also for connections that are open, and stay so after the agent's end and the next boot. When one of
them is wrong or does not fit, none is set. --dry-run checks that, and changes nothing. What its author should know of a policy is a warning on stderr ("reports" in JSON).`

const aboutPolicyList = `EGRESS and INGRESS are how many rules a policy has for what its pods begin, and for what others begin with them; "-" is that
it does not affect it. A tier is evaluated after the other, and in a tier the lower PRIORITY first. "porin policy get" shows the
REPORTS: parts without effect, parts that the API leaves undefined, and parts that are not in force. SOURCE is "file" (porin policy
apply) or "kubernetes" (its API).`

const aboutPolicyRefs = `REF is NAMESPACE/NAME of a NetworkPolicy, ciliumnetworkpolicy/NAMESPACE/NAME, or KIND/NAME of a policy of the cluster:
clusternetworkpolicy/NAME, adminnetworkpolicy/NAME, baselineadminnetworkpolicy/NAME or ciliumclusterwidenetworkpolicy/NAME. The case
of the kind does not matter.`

const aboutPolicyDiff = `It changes nothing. The policies of the file count as applied: they replace policies of the same kind, namespace and name, others stay. "By" is the
rule that decides then. A connection that the agent has not seen, or does not remember, is not in the answer. The audit of the node and of pods does not count:
the answer is as if they were in force. The audit of policies does.`

const aboutPolicyExplain = `For example: porin policy explain --from shop/web-0 --to shop/db-0 --port 5432
A pod may run on any node; name what is no pod by its address. Both ends are as they are after translation: the pod behind a Service, not
the Service. Egress is decided by the first one's policies, ingress by the second one's; both must allow it. IPv4 is taken when
both have addresses of both families. "Datapath" is what the maps of the kernel's programs say of the pods of this node; when it is not
the same, see "porin doctor". "Not in force" is why the datapath may decide as before.`

const aboutTrace = `REF is a container ID or its beginning, a pod (NAMESPACE/NAME), or what "porin endpoint get" takes. It shows all phases.
Deleted endpoints are shown too, as long as the agent keeps them: it keeps the latest operations only.`

const aboutGC = `An attachment is CONTAINERID:INTERFACE. Those of other networks are not touched, and none that begins after the call.
When many of the live attachments are not valid, the first call deletes nothing, and a second one in a row does.
The exit code is 1 when it was withheld, or when a part could not be taken down yet: the agent tries that again.`

const aboutMonitor = `A line has the time, the verdict, the protocol, both ends as they are without the node's translation, and why. Verdicts are allowed, audit (allowed,
as the policy that would deny it is in audit), denied (by a policy) and dropped (for another reason). A connection that is allowed is shown once, when it is opened, and
each packet that is denied or dropped. The agent does not see all of a flood: lost flows are counted and reported.
In JSON each flow is a line of its own. The agent keeps the last flows only; --last begins with some of them.`

const aboutEvents = `In JSON each event is a line of its own. The agent keeps the last events only: gaps show in seq.`

const aboutClusterDiff = aboutPolicyDiff + `
A connection between two nodes is seen by both, and counts twice among those seen.`

const aboutClusterStatus = `It reads Nodes, pods and Porin's records at the API server with your kubeconfig, and runs porin status in the container of
each agent, 20 at a time and each for 5 seconds. An agent that does not answer is a fault of its node. What many nodes say is one
line. The exit code is 1 when something is wrong; with --wait, when it still is after that time.`

const aboutClusterHealth = `It asks each agent which other nodes it does not reach (porin health --failing). A line has all paths from one node, or all to one
node, that fail in the same part; "porin help health" explains the parts. The exit code is 1 when a path fails or an agent does
not answer.`

const aboutClusterDoctor = `It runs porin doctor on each node, which examines and changes nothing. What many nodes find is one line; -o json has the answer
of each node. The exit code is 1 when something disagrees, or an agent does not answer.`

const aboutClusterMonitor = aboutMonitor + `
A line begins with the node that has seen the packet. Lines are in the order of time. A line that comes more than half a second
after later ones is marked as late.`

const aboutSysdump = `FILE is a tar.gz that is not there yet, or - for stdout: the agent's answers (status, doctor, health, endpoints, events, the last
flows) and links, routes, rules and neighbours of the kernel, at most 5 MiB. README.txt in it says what is missing, and why.
Reservations and their tokens are left out.`

const aboutClusterSysdump = `FILE is a tar.gz that is not there yet, or - for stdout: the archives of "porin sysdump" of all nodes, 20 at a time, the logs of
agents and proxies, Nodes, events, DaemonSets, policies and Porin's records. README.txt in it says what is missing, and why.
Reservations, their tokens, annotations and the environment of containers are left out.`

const aboutConnectivity = `It makes the namespace porin-connectivity with a server and a client on each node, a Service and host port of each server, and a
policy, tries all paths and removes them, after Ctrl-C, too. The pods run the image of the agents: nothing is pulled. Only addresses
that --outside names are reached outside of the cluster. The table has the paths that work; the list below it names the part at
fault: network (between nodes), tunnel, route, mtu, datapath, policy, kube-proxy, host-port, dns, outside, node (its pods do not start) or
probe (they do not answer). The exit code is 1 when a path fails.`
