// Package proxy applies the layer 7 rules of policies to the connections that the datapath redirects to it.
//
//	policy.Queue --> [Proxy]: rules by number          datapath: rows with these numbers, which have packets go to porin-l7
//	                    |                                   |
//	                 [Listener] <-- redirect.Listeners <----'
//	                    | [BuiltIn] has accepted: the socket's own address is the real destination
//	                    v
//	                 connection: who has opened it, and what the rows say (Kernel) --> httpproxy.Session --> redirect.Dial
//
// What it promises:
//
//   - A connection has the rules of both of its ends that are on this node. Rows and rules are read for each request if a policy has
//     changed, so that a request is decided by what is in force. What no row accepts any more is closed.
//   - Without rules under a number, for an endpoint that is gone, and for a connection of which it is not known who has opened it,
//     nothing passes.
//   - The way into the proxy exists while there are layer 7 rules. An endpoint's connections end before its policy goes.
//
// [Step] is the part in an endpoint's life; what the proxy needs of the datapath is [Kernel]. Another listener takes the place of the built-in one with [ModuleWith].
package proxy
