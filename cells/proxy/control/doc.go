// Package control connects an agent with a proxy in a process of its own, porin-proxy.
//
//	the agent                                         porin-proxy
//	policy.Queue --> [Client] ---- proxy.sock ----> [Server] --> proxy.Proxy
//	                    |  <-- learn, hold, report      |
//	                    '-- holds the sockets           '-- take-over --> the next porin-proxy
//
// The agent connects, and tells the proxy all layer 7 rules whenever some have changed. The proxy asks the agent to learn what names have, and gives it copies
// of its listening sockets to hold: while the proxy is away, connections wait in them. The agent gives them to the next proxy. What the proxy has of the agent
// outlives that: it goes on with the rules that it has, and keeps them in a file.
//
// An agent connects:
//
//	agent                                              proxy
//	hello: rules, the sockets that it holds     -->    uses them, has the rules
//	                                            <--    answer: rules that it cannot use
//	                                            <--    hold: its sockets, then and whenever they are others
//	rules, whenever some change                 -->    answer, when it has them
//	                                            <--    learn: waits until the addresses of a name are in the datapath
//
// Names that the proxy has learned without an agent:
//
//	import-names, before the first write        -->    answer: the journal, up to a mark; again after names-available, and after each hello
//	writes policies with these names
//	names-imported, when they are on the disk   -->    removes them from the journal, up to the mark
//
// The next proxy takes over. Connections and queries are accepted by the previous one until serving, and by both for a moment:
//
//	next                                               previous
//	take-over                                   -->    stops accepting control connections, tells the agent: replaced
//	adopts all                                  <--    handover: listening sockets, locks, control socket, rules
//	accepts the agent, which says hello
//	has the rules, attaches its program, accepts
//	serving                                     -->    closes control socket and journal
//	opens the journal                           <--    answer, or an error: it has gone on
//	                                                   closes its listening sockets, drains, ends
//
// How long each waits:
//
//	the agent for an answer to hello, and in the background     10 s   callTimeout
//	the agent for previous proxies, with new rules               1 s   previousTimeout
//	a deletion for an endpoint's connections to end              2 s   proxy.CloseTimeout
//	the agent for the datapath, when it learns for the proxy     1 s   learnTimeout
//	the agent for the journal, before its first write            1 s   policy.importNamesTimeout
//	a proxy for somebody who learns                         100 ms     learnerTimeout; an agent that is there has the second of the query
//	a proxy for an agent that learns                         50 ms     slowAgentAfter; then it asks whether the addresses are in force
//	a proxy for an agent that is notified of an answer           1 s   notifyTimeout; then again
//	a write for the other end to read                            2 s   writeTimeout; then the connection is closed
//	a start without a previous proxy for an agent                2 s   agentWait; then the rules of the file
//	take-over ... the next proxy for the agent                   2 s   agentReturnWait; then the rules of the handover
//	     '------- until it is to serve                          10 s   takeOverTimeout; then it ends
//	     '------- the previous one for serving                  15 s   handoverTimeout; then it goes on, and repairs
//	serving ..... the next one for the answer                    5 s   servingWait; then it goes on without
//	     '------- the previous one for its requests             30 s   --drain-timeout
package control
