// Package dnsproxy answers the DNS queries of pods whose policy restricts the names that they may ask for.
//
//	pod --query--> [Handler.HandleQuery] or [Handler.ServeTCP]
//	                   |  parse, rules, limits -------- refused: NXDOMAIN, REFUSED, FORMERR, NOTIMP, SERVFAIL or nothing --> pod
//	                   v
//	    [Config.Open], [Config.Dial] --the same bytes with another ID, from another port--> the server that the pod asked
//	                   |  <-- answers that do not match are ignored
//	                   v
//	              [Config.Learn]: the addresses are in the policy before the pod has them
//	                   |                                `- fails, or is late: SERVFAIL --> pod
//	                   '-- the same bytes with the ID of the pod --> pod                       [Config.Record] hears of every query
//
// The forwarded query is the one that was decided about: a query is forwarded only if it has one meaning. It has one
// question, with a name without compression, of class IN and a type of data, and nothing behind it but one OPT record.
// Another parser has to read the same question. The bytes are forwarded as they are, so EDNS options, cookies, the bits
// DO, AD and CD, and the case of the name pass.
//
// An answer is accepted when its ID and the bytes of its question equal the sent query's. The addresses of an answer
// are from records A and AAAA, and the hints of HTTPS and SVCB, in its answer section under the name of the question or
// a name that its CNAME records lead to. Hints are learned and not stripped: clients connect to them, and an answer
// without them would not match its signature. Addresses that only the additional section has are not learned: clients
// ask for them by name. Answers with an error pass.
//
// A pod hears SERVFAIL when the server has not answered in time, rather than nothing: the resolvers of glibc and Go ask
// the next server then, musl asks again, and a client on TCP does not hang. The timeout is a little shorter than the 5
// seconds after which resolvers give up. No datagram is repeated here: a query that the pod repeats is forwarded again.
//
// Messages are parsed by hand. The query has to be judged byte by byte, and the usual path has to be short:
// github.com/miekg/dns builds the whole message with an allocation for each record, accepts what is to be refused here,
// and is the measure in the tests. The other parser is golang.org/x/net/dns/dnsmessage, which reads a question without
// allocations.
package dnsproxy
