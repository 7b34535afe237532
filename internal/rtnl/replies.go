package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// replies sorts the answers of one batch to its requests.
type replies struct {
	first    uint32 // sequence number of requests[0]
	requests []Request
	failed   []error // by request
	done     []bool  // by request
	pending  int
}

func newReplies(first uint32, requests []Request) *replies {
	n := len(requests)
	return &replies{first: first, requests: requests, failed: make([]error, n), done: make([]bool, n), pending: n}
}

// take reads one datagram. What belongs to no request of the batch (the rest of one that was given up) is skipped.
func (r *replies) take(datagram []byte) error {
	for len(datagram) > 0 {
		if len(datagram) < headerLen {
			return errMalformed
		}
		size := int(binary.NativeEndian.Uint32(datagram))
		if size < headerLen || size > len(datagram) {
			return errMalformed
		}
		if i := binary.NativeEndian.Uint32(datagram[8:]) - r.first; i < uint32(len(r.requests)) && !r.done[i] {
			r.message(int(i), datagram[:size])
		}
		datagram = datagram[min(align(size), len(datagram)):]
	}
	return nil
}

// message takes one whole message that answers request i.
func (r *replies) message(i int, msg []byte) {
	typ, flags := binary.NativeEndian.Uint16(msg[4:]), binary.NativeEndian.Uint16(msg[6:])
	body := msg[headerLen:]
	if flags&unix.NLM_F_DUMP_INTR != 0 {
		r.fail(i, ErrInterrupted)
	}
	switch typ {
	case unix.NLMSG_ERROR, unix.NLMSG_DONE:
		r.fail(i, r.verdict(i, typ, flags, body))
		r.done[i] = true
		r.pending--
	case unix.NLMSG_NOOP:
	default:
		if answer := r.requests[i].Answer; answer != nil {
			if err := answer(typ, body); err != nil {
				r.fail(i, wrapped{r.requests[i].What, err})
			}
		}
	}
}

// fail keeps a request's first error.
func (r *replies) fail(i int, err error) {
	if r.failed[i] == nil {
		r.failed[i] = err
	}
}

// verdict reads the end of an exchange: an acknowledgement (struct nlmsgerr) or the end of a list, both of which begin
// with a negative errno or zero.
func (r *replies) verdict(i int, typ, flags uint16, body []byte) error {
	if len(body) < 4 {
		if typ == unix.NLMSG_DONE {
			return nil
		}
		return wrapped{r.requests[i].What, errMalformed}
	}
	code := int32(binary.NativeEndian.Uint32(body))
	if code == 0 {
		return nil
	}
	e := &Error{What: r.requests[i].What, Errno: unix.Errno(-code)}
	if flags&unix.NLM_F_ACK_TLVS != 0 {
		e.Text = extendedAck(typ, flags, body[4:])
	}
	return e
}

// extendedAck finds the kernel's words behind the errno: after the header of the request in an acknowledgement, and
// after its body, too, unless the acknowledgement is capped.
func extendedAck(typ, flags uint16, rest []byte) (text string) {
	skip := 0
	if typ == unix.NLMSG_ERROR {
		skip = headerLen
		if flags&unix.NLM_F_CAPPED == 0 && len(rest) >= headerLen {
			skip = int(min(binary.NativeEndian.Uint32(rest), uint32(len(rest))))
		}
	}
	_ = eachAttr(rest, skip, func(typ uint16, value []byte) {
		if typ == unix.NLMSGERR_ATTR_MSG {
			text = getString(value)
		}
	})
	return text
}

func (r *replies) errors() (errs Errors) {
	for _, err := range r.failed {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// wrapped is an error with what was being done, cheaper than fmt.
type wrapped struct {
	what string
	err  error
}

func (w wrapped) Error() string { return w.what + ": " + w.err.Error() }
func (w wrapped) Unwrap() error { return w.err }
