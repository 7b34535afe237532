// Package control connects an agent with a proxy in a process of its own, porin-proxy.
//
//	the agent                                         porin-proxy
//	policy.Queue --> [Client] ---- proxy.sock ----> [Server] --> proxy.Proxy
//	                    |  <-- learn, hold, report,     |
//	                    |      requests                 |
//	                    '-- holds the sockets           '-- take-over --> the next porin-proxy
//
// The agent connects, and tells the proxy all layer 7 rules whenever some have changed, and which names policies
// select. The proxy asks the agent to learn which addresses names have, and gives it copies of its listening sockets to
// hold: while the proxy is away, connections wait in them. The agent gives them to the next proxy. When the agent ends,
// the proxy goes on with the rules that it has, and keeps them in a file.
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
// The agent is the only writer of policies: an answer to a query waits until the agent has learned its addresses. While
// no agent answers, an answer that changes no policy passes, and any other one waits for the next agent ([Learner]). It
// changes none when
//
//	no rule for names matches its name          the agent has sent these rules with the others
//	its addresses are of the cluster            it has sent ranges of the cluster, too
//	an agent has acknowledged all of them       for this endpoint and name, and they are still valid
//
// The next proxy gets these addresses with the handover.
//
// The next proxy takes over. Connections and queries are accepted by the previous one until serving, and by both for a
// moment:
//
//	next                                               previous
//	take-over                                   -->    stops accepting control connections, tells the agent: replaced
//	adopts all                                  <--    handover: sockets, locks, rules, acknowledged addresses
//	accepts the agent, which says hello
//	has the rules, attaches its program, accepts
//	serving                                     -->    closes the control socket
//	                                            <--    answer, or an error: it has gone on
//	learns                                      <--    learn, for answers that wait
//	                                                   closes its listening sockets, drains, ends
//
// How long each waits:
//
//	the agent for an answer to hello, and in the background     10 s   callTimeout
//	the agent for previous proxies, with new rules               1 s   previousTimeout
//	a deletion for an endpoint's connections to end              2 s   proxy.CloseTimeout
//	an answer for an agent that learns                         4.5 s   after its query: dnsproxy.Limits
//	an answer that passes without an agent, for an agent      50 ms    slowAgent
//	a write for the other end to read                            2 s   writeTimeout; then the connection is closed
//	a start without a previous proxy for an agent                2 s   agentWait; then the rules of the file
//	take-over ... the next proxy for the agent                   2 s   agentReturnWait; then the rules of the handover
//	     '------- until it is to serve                          10 s   takeOverTimeout; then it ends
//	     '------- the previous one for serving                  15 s   handoverTimeout; then it goes on, and repairs
//	serving ..... the next one for the answer                    5 s   servingWait; then it goes on without
//	     '------- the previous one for its requests             30 s   --drain-timeout
package control
