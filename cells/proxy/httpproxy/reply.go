package httpproxy

import (
	"fmt"
	"net/http"
	"time"
)

// texts is the body of our own answers; the others name the reason only.
var texts = map[Reason]string{
	ReasonNoRule:        "The network policy does not allow this request.",
	ReasonAmbiguousPath: "The network policy cannot be applied to this path: a server may read it as another one.",
	ReasonTLS:           "This port is for plain HTTP: the network policy reads requests here, and cannot read TLS.",
	ReasonSilent:        "The client sent no request. This port is for HTTP: the network policy reads requests here.",
	ReasonDial:          "The server cannot be reached.",
	ReasonServerClosed:  "The server closed the connection and sent no answer.",
	ReasonServerNotHTTP: "The server does not speak HTTP.",
	ReasonResponse:      "The server's answer is not valid HTTP.",

	ReasonServerNotHTTP2:   "The server does not speak HTTP/2.",
	ReasonTooManyStreams:   "There are too many requests at a time on this connection.",
	ReasonCanceledByServer: "The server canceled the request.",
}

// Text explains the reason to the client.
func (r Reason) Text() string {
	if text := texts[r]; text != "" {
		return text
	}
	return "The network policy's proxy ended this request: " + string(r) + "."
}

// reply answers a request ourselves. closing tells the client that no other one is read.
func (s *Session) reply(r *Request, reason Reason, closing bool) {
	text := reason.Text()
	status, connection := reason.Status(), ""
	if closing {
		connection = "Connection: close\r\n"
	}
	b := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n%s\r\n",
		status, http.StatusText(status), len(text)+1, connection)
	if r.Method != http.MethodHead {
		b = append(append(b, text...), '\n')
	}
	s.client.SetWriteDeadline(time.Now().Add(s.Limits.Linger))
	s.client.Write(b) // if the client is gone, the next read says so
	if !closing {
		s.client.SetWriteDeadline(time.Time{})
	}
}

// refuse answers what is no valid request. Nothing else is read from the client.
func (s *Session) refuse(r *Request, reason Reason) {
	s.record(r, Refused, reason)
	s.reply(r, reason, true)
	s.end(refusedError(reason))
}

type refusedError Reason

func (e refusedError) Error() string { return "refused: " + string(e) }

// deny answers a request that is not allowed, whose head of n bytes is in the client's buffer. It reports whether the
// connection can be used further: where the body is short and surely follows.
func (s *Session) deny(r *Request, reason Reason, n int) bool {
	s.mu.Lock()
	closing := s.draining
	s.mu.Unlock()
	closing = closing || r.http10 || r.options.close || r.expect || r.framing.chunked || r.framing.length > s.Limits.Discard
	s.record(r, Denied, reason)
	s.reply(r, reason, closing)
	if closing {
		return false
	}
	s.client.Discard(n)
	if r.framing.length <= 0 {
		return true
	}
	s.setReadDeadline(s.client, time.Now().Add(s.Limits.Head))
	err := dropBytes(s.client, r.framing.length)
	s.setReadDeadline(s.client, time.Time{})
	return err == nil
}

// record tells of a request that the server does not see.
func (s *Session) record(r *Request, verdict Verdict, reason Reason) {
	if s.Record != nil {
		s.Record(Record{Method: r.Method, Host: r.Host, Path: r.Path, Status: reason.Status(), Verdict: verdict, Reason: reason})
	}
}

// recordExchange tells of a request that was forwarded.
func (s *Session) recordExchange(e *exchange, verdict Verdict, reason Reason, status int) {
	if s.Record != nil {
		s.Record(Record{Method: e.method, Host: e.host, Path: e.path, Status: status, Verdict: verdict, Reason: reason})
	}
}
