// Package control connects an agent with a proxy in a process of its own, porin-proxy.
//
//	the agent                                         porin-proxy
//	policy.Queue --> [Client] ---- proxy.sock ----> [Server] --> proxy.Proxy
//	                    |  <-- learn, hold, report      |
//	                    '-- holds the sockets           '-- take-over --> the next porin-proxy
//
// The agent connects, and tells the proxy all layer 7 rules whenever some have changed. The proxy asks the agent to learn what names have, and gives it
// copies of its listening sockets to hold: while the proxy is away, connections wait in them. The agent gives them to the next proxy.
//
// A proxy that is to be replaced hands its sockets, rules and lock to the next one, which connects to the same socket; it then lets its requests end. So
// no connection is refused.
//
// What the proxy has of the agent outlives that: it goes on with the rules that it has, and keeps them in a file.
package control
