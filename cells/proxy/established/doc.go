// Package established closes connections that are open when layer 7 rules for them come: the proxy, which knows nothing of their past, would reset
// them with their next packet, and who only waits for data would never notice.
//
//	policy.Queue writes rows with layer 7 rules:  before -> [policy.Closing] -> the pod's network namespace: SOCK_DESTROY of its sockets
//	                                              after  -> the same for those that were established meanwhile
//
// The other end gets the reset that the kernel sends for a socket. Before, the policy lets it pass; after, the program from_pod does, as it is of a
// connection that does not go to the proxy. The namespace is found by a process that is in it, so the agent has to see the node's processes. It takes
// CONFIG_INET_DIAG_DESTROY; without, the reset of the proxy remains. What goes through the proxy already, as rules have come and gone before, stays
// open: in the node's network namespace, it has a socket with the proxy's mark. A [Config] may say that connections are kept: then only those to the
// node itself are closed, which cannot go on past the proxy.
package established
