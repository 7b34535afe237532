// Package proxy applies the layer 7 rules of policies to the connections that the datapath redirects to it.
//
//	policy.Queue --> [Proxy]: rules by number          datapath: rows with these numbers, which send packets to porin-l7
//	                    |                                   |
//	                 [Listener] <-- redirect.Listeners <----'  TCP and UDP
//	                    |
//	                 [BuiltIn]: the socket's own address, or the datagram's, is the real destination
//	                    |
//	                    v
//	                 connection: its opener, and the rows' verdict ([Kernel]) --> HTTP or DNS, as its rules are for
//	                    |
//	                    |-- TCP, HTTP --> httpproxy.Session, http2proxy.Session --> redirect.Dial --> the server
//	                    |-- TCP, DNS  --> dnsproxy.Handler                      --> redirect.Dial --> the server
//	                    '-- UDP, DNS  --> dnsproxy.Handler                      --> redirect.UDPLoop --> the server
//	                                          '-- answers --> policy.Learner: addresses of names, before the pod has them
//
// What it promises:
//
//   - A connection has the rules of both of its ends that are on this node. Rows and rules are read for each request if
//     a policy has changed, so that a request is decided by the rules in force. A connection that no row accepts any
//     more is closed.
//   - Without rules under a number, for a deleted endpoint, and for a connection with an unknown opener,
//     nothing passes.
//   - The way into the proxy exists while there are layer 7 rules. An endpoint's connections end before its policy
//     goes.
//
// Its packages:
//
//   - redirect: the way of packets into the proxy, its sockets, and connections to servers
//   - httpproxy, http2proxy: the protocols, and rules for HTTP; bufconn (buffers and memory of a connection), watchdog
//     (periodic check of a session)
//   - dnsproxy: the protocol; what names have is package policy/names
//   - quota: what each endpoint may have of all that there is room for
//   - mapkernel: the [Kernel] of the datapath's maps
//   - accesslog: the requests of clients, for the agent's flows
//   - control: the connection between an agent and porin-proxy, and the takeover by the next porin-proxy
//   - proxytest: what tests of the protocols have in common
//
// [Step] is the part in an endpoint's life; [Kernel] is the interface to the datapath. Another listener takes the place
// of the built-in one with [ModuleWith].
package proxy
