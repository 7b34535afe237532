// Package engine turns policies and endpoints into verdicts, and into rows from which a datapath can read the same
// verdicts. It is plain Go: no kernel, no store, no fx, no locks.
//
//	[Update] --> [Engine.Apply] --> selectors --> label sets --> classes --> tables --> [Change]
//	                                                               |           |
//	                   [Engine.End]: address -> class -------------'           '-- [Engine.Table]: (class), else (any) -> rows
//	                   [Engine.Evaluate]: two addresses, protocol, port -> verdict, deciding policy and rule, reason
//
// An example: one NetworkPolicy lets pods with app=web reach those with app=db at port 3306.
//
//	selector   what a rule's peer selects by: labels of pods, labels of nodes, a block of addresses, or names. Equal ones are one.
//	           Here: pods with app=web, of the policy's namespace
//	label set  endpoints of a namespace with equal labels: they match the same selectors.
//	           Here: one of all web pods, which matches the selector; one of all db pods, which does not
//	class      addresses of the same kind which match the same selectors and have the same named ports, as far as rules ask for
//	           them. An address may be a pod's and match blocks.
//	           Here: 8 for the addresses of web pods, 9 for db pods, and the fixed ones
//	table      the rows of all local endpoints that the same policies select, in one direction.
//	           Here: one for ingress of the db pods; one without policies for all else, in each direction
//	row        a protocol and a prefix of destination ports, with the decision.
//	           Here: (class 8): TCP 3306 allowed, all else denied; (class 2, this node): all allowed; (any): all denied
//
// Every kind but pods has a class with a fixed number (its kind + 1) for addresses that no rule tells apart. An address
// without an endpoint has the class of its longest prefix in [Engine.Prefixes].
//
// All rules are resolved when a table is compiled: a class with rows of its own has all that it needs, so the first hit
// of (class), else (any), is final. Prefixes of a protocol are disjoint, but for one without bits, which stands for the
// remaining ports; the row without a protocol stands for the remaining protocols.
//
// In TierNetworkPolicy, a rule that accepts may have layer 7 rules. When only such rules accept a connection, the
// decision has all their layer 7 rules, each once ([Layer7]), with a number for the rows: a hash of the rules, so that
// the next engine has the same, or the next number that is free. A number stands for the same rules until it is
// released. Rules for several protocols on the same connection deny it, and are reported.
//
// To find quickly what an update affects, the engine has each thing once, and counts its users: a selector has the
// selector sets that it is in, a selector set the classes that match just these selectors, and a selector the tables
// whose rules use it.
//
// A policy or an endpoint in audit, or a node, counts for nothing in what tables, rows and changes say.
// [Engine.Evaluate] has also what it would be otherwise.
//
// The model's picture of the tiers shows the rules of the API. These it leaves open:
//
//   - Policies of equal priority are evaluated by kind and name, and [Engine.Reports] lists them.
//   - Names select the addresses that the engine was told of, as ranges of one address each, which may be in blocks,
//     too. They are for what is outside of the cluster: an address of an endpoint, or in an unmanaged range, is none of
//     a name, whatever an answer says.
//   - Rules with ports match TCP, UDP and SCTP only. ICMP is matched by rules without ports.
//   - A named port is one of the destination pod's, whatever selected the pod. A destination that is no pod has none.
//   - A pod reaches itself. No row says so: rows know classes only, and such packets do not leave the pod.
//   - This node reaches its own pods, unless [Config] says otherwise. Egress from a pod to its node is subject to
//     policy.
//   - A pod whose labels are not known (kind init) is denied everything but itself and this node, as long as it lasts.
//   - An address belongs to the endpoint that was set last.
//
// Apply recomputes what its update can affect: label sets that a new selector matches, classes that are split by that,
// rows of these classes in the tables that use their selectors, and tables of endpoints which a changed policy selects.
// A class keeps its number when all its members go on together.
package engine
