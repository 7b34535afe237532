// Package redirect is the way of packets into the proxy of this node, and of its connections to their destinations.
//
//	to_pod, to_uplink --> porin-l7 --> select_listener --> [Listeners]     the first packet of a connection, and packets that get another source port
//	prerouting, after translation: table inet porin-proxy, a mark, a rule --> the proxy's socket     all others, and ICMP errors
//	[Redirect.Dial] --> a socket with the client's address and the proxy's mark --> to_pod, or another node
//
//	[UDPListener] --> [UDPLoop], one thread --> [UDPSocket], as the client --> the server
//	[Listeners.Reply]: as the server --> the client
//
// A listening socket is bound to no port that anybody would use: the program select_listener (SK_LOOKUP) gives it what
// comes by the device porin-l7, whatever its destination. So the accepted socket's own address is the real destination,
// after the node's translation, and the node's conntrack translates what it answers.
//
// Packets of an accepted socket, and answers to a dialed one, are for addresses of pods, which the node would forward.
// The table diverts them: a packet of a socket with the proxy's mark gets another mark, and a rule delivers it locally.
//
// All of it belongs to the network namespace of the thread that calls [Redirect.Open]. It stays when the agent ends:
// new connections wait for the next one's sockets.
package redirect
