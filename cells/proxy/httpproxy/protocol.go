package httpproxy

import (
	"bytes"
	"time"
)

// refuseOtherProtocol recognises what cannot begin a request, and refuses it without waiting for more.
func (s *Session) refuseOtherProtocol() bool {
	const handshake = 0x16 // the first byte of TLS
	first := s.client.Data()[0]
	reason := ReasonRequestLine
	switch {
	case class[first]&inToken != 0:
		return false
	case first == handshake && !s.asked:
		reason = ReasonTLS
	}
	s.refuse(&Request{}, reason)
	return true
}

// isHTTP2Preface recognises the first line of HTTP/2's connection preface, and the empty one behind it (RFC 9113, 3.4).
func isHTTP2Preface(head []byte) bool { return bytes.Equal(head, []byte("PRI * HTTP/2.0\r\n\r\n")) }

// refuseHTTP2 tells a client that speaks HTTP/2 in its own protocol that it is not served: by an empty SETTINGS and a
// GOAWAY whose code is HTTP_1_1_REQUIRED.
func (s *Session) refuseHTTP2() {
	const text = "the network policy's proxy speaks HTTP/1.1 only"
	frames := []byte{
		0, 0, 0, 4, 0, 0, 0, 0, 0,
		0, 0, byte(8 + len(text)), 7, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0x0d,
	}
	s.recordExchange(&exchange{}, Refused, ReasonHTTP2, 0)
	s.client.SetWriteDeadline(time.Now().Add(s.Limits.Linger))
	s.client.Write(append(frames, text...)) // if the client is gone, the next read says so
	s.end(refusedError(ReasonHTTP2))
}
