package httpproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"porin.dev/porin/cells/proxy/bufconn"
)

// memory is a connection that gives what it is made with, and keeps what is written to it.
type memory struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func (m *memory) Read(b []byte) (int, error)  { return m.in.Read(b) }
func (m *memory) Write(b []byte) (int, error) { return m.out.Write(b) }

func memoryConn(in []byte) (*bufconn.Conn, *memory) {
	m := &memory{in: bytes.NewReader(in)}
	return bufconn.New(m, new(atomic.Uint32), bufconn.Unlimited{}), m
}

// forwardAll forwards the body of one message, and returns it with what it left.
func forwardAll(b framing, untilClose bool, in []byte) (body, rest []byte, err error) {
	limits := DefaultLimits()
	from, source := memoryConn(in)
	to, sink := memoryConn(nil)
	w := writer{to: to}
	if untilClose {
		err = forwardStream(&w, from)
	} else {
		err = b.forward(&w, from, &limits)
	}
	rest = append(bytes.Clone(from.Data()), in[len(in)-source.in.Len():]...)
	from.Discard(len(from.Data()))
	return sink.out.Bytes(), rest, err
}

// sameHeaders compares the headers with net/http's, but for the headers that it removes.
func sameHeaders(t *testing.T, head []byte, fields []field, theirs http.Header) {
	t.Helper()
	ours := http.Header{}
	for i := range fields {
		if k := fields[i].known; k != hHost && k != hTransferEncoding && k != hTrailer && k != hConnection {
			ours.Add(string(fields[i].nameOf(head)), string(fields[i].valueOf(head)))
		}
	}
	theirs.Del("Trailer")
	theirs.Del("Connection")
	if theirs.Get("Pragma") == "no-cache" && ours.Get("Cache-Control") == "" {
		theirs.Del("Cache-Control") // net/http adds it
	}
	for name, values := range ours {
		if strings.Join(values, "\n") != strings.Join(theirs[name], "\n") {
			t.Errorf("header %s: %q, net/http %q", name, values, theirs[name])
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("headers %v, net/http %v", ours, theirs)
	}
}

// FuzzRequest: what we accept, net/http accepts, as the same request with the same body, and what is forwarded is that
// request too.
func FuzzRequest(f *testing.F) {
	for _, tt := range refusedRequests {
		f.Add([]byte(tt.text + "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n"))
	}
	for _, text := range []string{
		benchRequest,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\nHost: b\r\n\r\n",
		"POST http://a/x?y HTTP/1.1\r\nHost: A\r\nContent-Length: 3\r\nConnection: x, close\r\nX: y\r\n\r\nabcGET",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: [::1]:80\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nTE: trailers\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		n := headEnd(in, 0)
		if n == 0 || bytes.HasPrefix(in, []byte("PRI ")) {
			return
		}
		r := new(Request)
		if r.parse(in[:n], 128, new(knownHost)) != "" {
			return
		}
		reader := bufio.NewReaderSize(bytes.NewReader(in), len(in)+16)
		theirs, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("net/http does not accept it: %v", err)
		}
		line, _ := firstLine(in)
		target := strings.Split(string(line), " ")[1]
		if r.Method != theirs.Method || target != theirs.RequestURI || r.http10 != !theirs.ProtoAtLeast(1, 1) {
			t.Errorf("got %s %s, net/http %s %s", r.Method, target, theirs.Method, theirs.RequestURI)
		}
		if r.Path != "*" && r.Path != theirs.URL.EscapedPath() && r.Path != strings.TrimPrefix(theirs.URL.RequestURI(), "http://"+theirs.URL.Host) {
			if path, _, _ := strings.Cut(r.Path, "?"); path != theirs.URL.EscapedPath() && unescaped(path) != theirs.URL.Path {
				t.Errorf("path %q, net/http %q", r.Path, theirs.URL.RequestURI())
			}
		}
		if host, _ := hostName(theirs.Host); strings.ToLower(host) != r.Host {
			t.Errorf("host %q, net/http %q", r.Host, theirs.Host)
		}
		sameHeaders(t, in[:n], r.fields, theirs.Header)
		theirBody, theirErr := io.ReadAll(theirs.Body)
		body, rest, err := forwardAll(r.framing, false, in[n:])
		if err != nil {
			return
		}
		if theirErr != nil {
			t.Fatalf("net/http does not accept the body: %v", theirErr)
		}
		if left, _ := io.ReadAll(reader); !bytes.Equal(left, rest) {
			t.Errorf("left %q, net/http %q", rest, left)
		}
		// The forwarded request.
		to, sink := memoryConn(nil)
		w := writer{to: to}
		r.writeTo(&w, false)
		w.flush()
		reader = bufio.NewReader(io.MultiReader(&sink.out, bytes.NewReader(body)))
		forwarded, err := http.ReadRequest(reader)
		if err != nil {
			t.Fatalf("net/http does not accept what is forwarded: %v", err)
		}
		got, err := io.ReadAll(forwarded.Body)
		if err != nil || !bytes.Equal(got, theirBody) || forwarded.Host != theirs.Host || forwarded.RequestURI != theirs.RequestURI {
			t.Errorf("forwarded %s %s %q, %v; want %s %s %q", forwarded.RequestURI, forwarded.Host, got, err, theirs.RequestURI, theirs.Host, theirBody)
		}
		if left, _ := io.ReadAll(reader); len(left) > 0 {
			t.Errorf("behind what is forwarded: %q", left)
		}
	})
}

func unescaped(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			i += 2
		}
		b.WriteByte(c)
	}
	return b.String()
}

// FuzzResponse: the same for responses.
func FuzzResponse(f *testing.F) {
	for _, tt := range refusedResponses {
		f.Add([]byte(tt.text+"3\r\nabc\r\n0\r\n\r\n"), "GET")
	}
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.0 200 OK\r\n\r\nabc",
		"HTTP/1.1 304 \r\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nConnection: close, x\r\nX: y\r\n\r\n3;x\r\nabc\r\n0\r\nX: y\r\n\r\nHTTP",
	} {
		f.Add([]byte(text), "GET")
		f.Add([]byte(text), "HEAD")
	}
	f.Fuzz(func(t *testing.T, in []byte, method string) {
		n := headEnd(in, 0)
		if n == 0 || method == "CONNECT" {
			return
		}
		p := new(response)
		if p.parse(in[:n], 128, false) != "" || p.interim() {
			return
		}
		request := &http.Request{Method: method}
		reader := bufio.NewReaderSize(bytes.NewReader(in), len(in)+16)
		theirs, err := http.ReadResponse(reader, request)
		if err != nil {
			t.Fatalf("net/http does not accept it: %v", err)
		}
		if p.status != theirs.StatusCode {
			t.Errorf("status %d, net/http %d", p.status, theirs.StatusCode)
		}
		sameHeaders(t, in[:n], p.fields, theirs.Header)
		theirBody, theirErr := io.ReadAll(theirs.Body)
		toHEAD := method == "HEAD"
		untilClose := p.untilClose(toHEAD)
		b := p.framing
		if p.bodyless(toHEAD) {
			b = framing{length: -1}
		}
		body, rest, err := forwardAll(b, untilClose, in[n:])
		if err != nil {
			return
		}
		if theirErr != nil {
			t.Fatalf("net/http does not accept the body: %v", theirErr)
		}
		if left, _ := io.ReadAll(reader); !bytes.Equal(left, rest) {
			t.Errorf("left %q, net/http %q", rest, left)
		}
		to, sink := memoryConn(nil)
		w := writer{to: to}
		p.writeTo(&w, untilClose)
		w.flush()
		reader = bufio.NewReader(io.MultiReader(&sink.out, bytes.NewReader(body)))
		forwarded, err := http.ReadResponse(reader, request)
		if err != nil {
			t.Fatalf("net/http does not accept what is forwarded: %v", err)
		}
		got, err := io.ReadAll(forwarded.Body)
		if err != nil || !bytes.Equal(got, theirBody) || forwarded.StatusCode != theirs.StatusCode {
			t.Errorf("forwarded %d %q, %v; want %d %q", forwarded.StatusCode, got, err, theirs.StatusCode, theirBody)
		}
		if left, _ := io.ReadAll(reader); len(left) > 0 {
			t.Errorf("behind what is forwarded: %q", left)
		}
	})
}
