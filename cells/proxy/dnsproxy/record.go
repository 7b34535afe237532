package dnsproxy

import (
	"net/netip"
	"time"
)

// Query is one message of a pod.
type Query struct {
	Endpoint uint16
	Client   netip.AddrPort
	Server   netip.AddrPort // that the pod has sent it to
	TCP      bool
	Message  []byte
	// Caller is what the caller knows of the query: the functions of [Config] get it.
	Caller any
}

// Record says what became of a query.
type Record struct {
	Endpoint       uint16
	Client, Server netip.AddrPort
	TCP            bool
	Name           string // as of package dnsname; empty if the message has none that can be read
	Type           uint16
	Outcome        Outcome
	Code           int           // of the reply; -1 without one
	Duration       time.Duration // from the query to the reply
}

// Outcome is what became of a query.
type Outcome string

// The outcomes there are. Policy, Kind and Ambiguous are refusals of the query; those below Canceled are failures.
const (
	Answered      Outcome = "answered"       // the pod has what the server said
	Policy        Outcome = "policy"         // no rule matches the name
	Kind          Outcome = "kind"           // a class other than IN, or a type that is not of data, as for zone transfers
	Ambiguous     Outcome = "ambiguous"      // another parser reads something else, or nothing: a label has a dot
	Malformed     Outcome = "malformed"      // not a query with one question and at most one OPT record
	Unsupported   Outcome = "unsupported"    // an opcode other than QUERY
	Response      Outcome = "response"       // not a query
	EndpointLimit Outcome = "endpoint-limit" // the endpoint has too many queries in flight
	TotalLimit    Outcome = "total-limit"    // all endpoints together have too many
	Connections   Outcome = "connections"    // too many TCP connections; this one was closed
	Canceled      Outcome = "canceled"       // the caller has stopped waiting
	Unreachable   Outcome = "unreachable"    // the server cannot be reached, or has closed the connection
	Timeout       Outcome = "timeout"        // the server has not answered in time
	BadAnswer     Outcome = "bad-answer"     // the server's answer cannot be read
	LearnFailed   Outcome = "learn-failed"   // the addresses could not be made part of the policy
	LearnLate     Outcome = "learn-late"     // they were not part of it in time, as no agent has answered
)

// noReply is the code of a query without reply.
const noReply = -1

// code returns the code of the reply, except of Policy, for which [Config.Denied] has it.
func (o Outcome) code() int {
	switch o {
	case Kind, Ambiguous:
		return codeRefused
	case Malformed:
		return codeFormat
	case Unsupported:
		return codeNotImplemented
	case Response, Connections:
		return noReply
	default:
		return codeServer
	}
}

// extended returns the extended error (RFC 8914) that explains the code, and 0 if there is none that says more.
func (o Outcome) extended() uint16 {
	switch o {
	case Policy:
		return 15 // blocked
	case Kind, Ambiguous:
		return 21 // not supported
	case EndpointLimit, TotalLimit:
		return 14 // not ready
	case Timeout:
		return 22 // no reachable authority
	case Unreachable:
		return 23 // network error
	default:
		return 0
	}
}
