package httpproxy

// framing is what a head says about the length of the body.
type framing struct {
	length  int64 // of Content-Length; -1 without one
	chunked bool
}

// readFraming takes no length that another recipient could read otherwise: no second Content-Length, even an equal one,
// no list or sign, none together with Transfer-Encoding, and no coding but "chunked" (RFC 9112, 6.1 to 6.3 and 11.2).
func readFraming(head []byte, fields []field, http10 bool) (framing, Reason) {
	f := framing{length: -1}
	for i := range fields {
		switch fields[i].known {
		case hContentLength:
			n, ok := parseLength(fields[i].valueOf(head))
			if !ok || f.length >= 0 {
				return f, ReasonLength
			}
			f.length = n
		case hTransferEncoding:
			if f.chunked || http10 || !equalFold(fields[i].valueOf(head), "chunked") {
				return f, ReasonTransferCoding
			}
			f.chunked = true
		}
	}
	if f.chunked && f.length >= 0 {
		return f, ReasonLengthTwice
	}
	return f, ""
}
