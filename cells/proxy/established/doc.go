// Package established closes connections that are open when layer 7 rules for them come: the proxy, which knows nothing of their past, would reset
// them with their next packet, and who only waits for data would never notice.
//
//	policy.Queue, before it writes rows with layer 7 rules -> [Closer.Close] -> the pod's network namespace: SOCK_DESTROY of its sockets
//
// The other end gets the reset that the kernel sends for a socket, while the policy of before still lets it pass. The namespace is found by a process
// that is in it, so the agent has to see the node's processes. It takes CONFIG_INET_DIAG_DESTROY; without, and for what is opened meanwhile, the reset
// of the proxy remains. What goes through the proxy already, as rules have come and gone before, stays open: in the node's network namespace, it has a socket with the
// proxy's mark. A [Config] may say that connections are kept: then only those to the node itself are closed, which cannot go on past the proxy.
package established
