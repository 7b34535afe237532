package httpproxy

import (
	"strings"
	"testing"
)

// refusedRequests are heads that two recipients could read differently, or that are no HTTP/1.1, each with its source.
// "Smuggling" is described in RFC 9112, 11.2.
var refusedRequests = []struct {
	name, text string
	reason     Reason
}{
	{"Content-Length and Transfer-Encoding, RFC 9112 6.1", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonLengthTwice},
	{"Transfer-Encoding and Content-Length", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", ReasonLengthTwice},
	{"two lengths, RFC 9112 6.3", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", ReasonLength},
	{"two equal lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", ReasonLength},
	{"list of lengths, RFC 9110 8.6", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", ReasonLength},
	{"length with plus", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", ReasonLength},
	{"length with minus", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n", ReasonLength},
	{"hexadecimal length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n", ReasonLength},
	{"length with underscore", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1_0\r\n\r\n", ReasonLength},
	{"length with blank", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1 0\r\n\r\n", ReasonLength},
	{"empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", ReasonLength},
	{"length beyond 63 bits", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", ReasonLength},
	{"length of many zeros", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 00000000000000000003\r\n\r\n", ReasonLength},
	{"length by its name in other case", "POST / HTTP/1.1\r\nHost: a\r\ncontent-length: 3\r\nCONTENT-LENGTH: 3\r\n\r\n", ReasonLength},

	{"coding before chunked, RFC 9112 6.1", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", ReasonTransferCoding},
	{"coding after chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n", ReasonTransferCoding},
	{"two Transfer-Encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonTransferCoding},
	{"two, one of them unknown", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonTransferCoding},
	{"identity", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", ReasonTransferCoding},
	{"quoted chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", ReasonTransferCoding},
	{"chunked with parameter", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;a=b\r\n\r\n", ReasonTransferCoding},
	{"xchunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", ReasonTransferCoding},
	{"empty Transfer-Encoding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", ReasonTransferCoding},
	{"vertical tab before chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", ReasonHeader},
	{"Transfer-Encoding in HTTP/1.0, RFC 9112 6.1", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", ReasonTransferCoding},

	{"no Host, RFC 9112 3.2", "GET / HTTP/1.1\r\n\r\n", ReasonMissingHost},
	{"two Hosts, RFC 9112 3.2", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", ReasonHost},
	{"two equal Hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", ReasonHost},
	{"empty Host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", ReasonHost},
	{"Host with path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", ReasonHost},
	{"Host with user", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", ReasonHost},
	{"list of Hosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", ReasonHost},
	{"Host with blank", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", ReasonHost},
	{"Host with escape", "GET / HTTP/1.1\r\nHost: a%2eb\r\n\r\n", ReasonHost},
	{"Host with two ports", "GET / HTTP/1.1\r\nHost: a:80:81\r\n\r\n", ReasonHost},
	{"Host with empty port", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", ReasonHost},
	{"Host with port name", "GET / HTTP/1.1\r\nHost: a:http\r\n\r\n", ReasonHost},
	{"Host of only a port", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", ReasonHost},
	{"Host with zone", "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", ReasonHost},
	{"Host with open bracket", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", ReasonHost},
	{"IPv4 in brackets", "GET / HTTP/1.1\r\nHost: [10.0.0.1]\r\n\r\n", ReasonHost},
	{"absolute form of another host, RFC 9112 3.2.2", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", ReasonHostMismatch},
	{"absolute form with another port", "GET http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n", ReasonHostMismatch},
	{"absolute form without Host in HTTP/1.0", "GET http://a/ HTTP/1.0\r\n\r\n", ReasonHostMismatch},
	{"absolute form with user", "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", ReasonHostMismatch},
	{"absolute form of https", "GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"absolute form without path", "GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"absolute form with query for path", "GET http://a?b/c HTTP/1.1\r\nHost: a\r\n\r\n", ReasonHostMismatch},
	{"absolute form without authority", "GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},

	{"relative target", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"asterisk with GET, RFC 9112 3.2.4", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", ReasonConnect},
	{"CONNECT with path", "CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", ReasonConnect},
	{"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"NUL in target", "GET /a\x00 HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"raw UTF-8 in target", "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"half an escape", "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"escape of no number", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", ReasonTarget},
	{"two spaces, RFC 9112 3", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"two spaces before the version", "GET /  HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"space after the version", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"tab for space", "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"HTTP/0.9", "GET /\r\n\r\n", ReasonRequestLine},
	{"empty line first", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"method of no token", "GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"no method", " / HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"version in lower case, RFC 9112 2.3", "GET / http/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", ReasonVersion},
	{"HTTP/2.0", "GET / HTTP/2.0\r\nHost: a\r\n\r\n", ReasonVersion},
	{"version of more digits", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", ReasonRequestLine},

	{"bare LF after the request line, RFC 9112 2.2", "GET / HTTP/1.1\nHost: a\r\n\r\n", ReasonRequestLine},
	{"bare LF after a header", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", ReasonHeader},
	{"only bare LF", "GET / HTTP/1.1\nHost: a\n\n", ReasonRequestLine},
	{"bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", ReasonHeader},
	{"bare CR in a value, RFC 9112 2.2", "GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n", ReasonHeader},
	{"bare CR in the request line", "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", ReasonRequestLine},
	{"bare CR before CRLF", "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", ReasonHeader},
	{"NUL in a value, RFC 9110 5.5", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", ReasonHeader},
	{"DEL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7fb\r\n\r\n", ReasonHeader},
	{"folded header, RFC 9112 5.2", "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", ReasonHeader},
	{"folded with tab", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n", ReasonHeader},
	{"space before the first header, RFC 9112 2.2", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", ReasonHeader},
	{"space before the colon, RFC 9112 5.1", "GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 3\r\n\r\n", ReasonHeader},
	{"tab before the colon", "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n", ReasonHeader},
	{"length by another name", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent_length: 30\r\n\r\n", ReasonHeader},
	{"chunked by another name", "POST / HTTP/1.1\r\nHost: a\r\nTRANSFER_ENCODING: chunked\r\n\r\n", ReasonHeader},
	{"no colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", ReasonHeader},
	{"no name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", ReasonHeader},
	{"name of no token", "GET / HTTP/1.1\r\nHost: a\r\nX(Y): x\r\n\r\n", ReasonHeader},
	{"name with high byte", "GET / HTTP/1.1\r\nHost: a\r\nX\xe9: x\r\n\r\n", ReasonHeader},
	{"name with NUL", "GET / HTTP/1.1\r\nHost: a\r\nX\x00: x\r\n\r\n", ReasonHeader},
	{"names in Connection without end", "GET / HTTP/1.1\r\nHost: a\r\nConnection: " + strings.Repeat("a,", 100) + "\r\n\r\n", ReasonHeader},
	{"too many headers", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 128) + "\r\n", ReasonHeadTooLarge},
	{"unknown expectation, RFC 9110 10.1.1", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nExpect: x\r\n\r\n", ReasonExpectation},
}

func TestRefusedRequests(t *testing.T) {
	for _, tt := range refusedRequests {
		t.Run(tt.name, func(t *testing.T) {
			if n := headEnd([]byte(tt.text), 0); n == 0 {
				t.Fatal("the end of the head is not found")
			}
			var host knownHost
			if reason := new(Request).parse([]byte(tt.text), 128, &host); reason != tt.reason {
				t.Errorf("got %q, want %q", reason, tt.reason)
			}
		})
	}
}

// TestRefusedRequestsEndConnection sends each one on a connection that has served a request.
func TestRefusedRequestsEndConnection(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	for _, tt := range refusedRequests {
		t.Run(tt.name, func(t *testing.T) {
			c := p.dial()
			c.t = t
			c.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n")
			c.expect(200, "/first")
			c.send(tt.text + "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")
			if answer, _ := c.response("GET"); answer.StatusCode != tt.reason.Status() || !answer.Close {
				t.Errorf("got %d, close %v; want %d and close", answer.StatusCode, answer.Close, tt.reason.Status())
			}
			c.expectEnd()
		})
	}
	for _, r := range p.recorded() {
		if r.Path != "/first" && r.Verdict != Refused {
			t.Errorf("recorded as %s: %v", r.Verdict, r)
		}
	}
}

func TestAcceptedRequests(t *testing.T) {
	for _, tt := range []struct {
		name, text, method, path, host string
		framing                        framing
	}{
		{"plain", "GET /a?b=c HTTP/1.1\r\nHost: A.example:8080\r\n\r\n", "GET", "/a?b=c", "a.example", framing{length: -1}},
		{"unknown method", "X-Y_Z /%61 HTTP/1.1\r\nhost:a\r\n\r\n", "X-Y_Z", "/%61", "a", framing{length: -1}},
		{"IPv6", "GET / HTTP/1.1\r\nHost: [FD00::1]:80\r\n\r\n", "GET", "/", "fd00::1", framing{length: -1}},
		{"absolute form", "GET HTTP://A:80/x?y HTTP/1.1\r\nHost: a:80\r\n\r\n", "GET", "/x?y", "a", framing{length: -1}},
		{"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS", "*", "a", framing{length: -1}},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", "GET", "/", "", framing{length: -1}},
		{"length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \t 007 \t\r\n\r\n", "POST", "/", "a", framing{length: 7}},
		{"chunked", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunKed\r\n\r\n", "POST", "/", "a", framing{length: -1, chunked: true}},
		{"any escape in the query", "GET /?%zz//..%2f HTTP/1.1\r\nHost: a\r\n\r\n", "GET", "/?%zz//..%2f", "a", framing{length: -1}},
		{"obs-text and empty value", "GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\r\nY:\r\n\r\n", "GET", "/", "a", framing{length: -1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Request
			var host knownHost
			if reason := r.parse([]byte(tt.text), 128, &host); reason != "" {
				t.Fatal(reason)
			}
			if r.Method != tt.method || r.Path != tt.path || r.Host != tt.host || r.framing != tt.framing {
				t.Errorf("got %s %s %s %v", r.Method, r.Path, r.Host, r.framing)
			}
		})
	}
}

func TestHeadEnd(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	text := []byte(head + "rest")
	for n := range len(text) + 1 {
		want := 0
		if n >= len(head) {
			want = len(head)
		}
		for scanned := range min(n, len(head)) {
			if got := headEnd(text[:n], scanned); got != want {
				t.Errorf("of %d bytes, %d scanned before: %d, want %d", n, scanned, got, want)
			}
		}
	}
}
