package rtnl

// Request is one route-netlink message and what to do with its answer. It may be used once in a [Conn.Do].
type Request struct {
	What  string // what is asked, for errors: "create veth porabc"
	Type  uint16 // RTM_...
	Flags uint16 // NLM_F_..., without REQUEST and ACK
	Body  []byte // the fixed header of the type, then attributes
	// Answer is called for every message that answers the request other than its acknowledgement. The body is valid
	// during the call only. Nil ignores answers.
	Answer func(typ uint16, body []byte) error
}
