package http2proxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// memory is a connection whose peer has sent everything at once, and keeps what it is sent.
type memory struct {
	in  *bytes.Reader
	out bytes.Buffer
}

func newMemory(in []byte) *memory {
	return &memory{in: bytes.NewReader(in)}
}

func (m *memory) Read(b []byte) (int, error)       { return m.in.Read(b) }
func (m *memory) Write(b []byte) (int, error)      { return m.out.Write(b) }
func (m *memory) Close() error                     { return nil }
func (m *memory) LocalAddr() net.Addr              { return nil }
func (m *memory) RemoteAddr() net.Addr             { return nil }
func (m *memory) SetDeadline(time.Time) error      { return nil }
func (m *memory) SetReadDeadline(time.Time) error  { return nil }
func (m *memory) SetWriteDeadline(time.Time) error { return nil }

// FuzzClient: a client sends anything. The server's input is read by another implementation, and has to be what was
// decided about.
func FuzzClient(f *testing.F) {
	for _, send := range []func(c *http2.Framer, fields func(...string) []byte){
		func(c *http2.Framer, fields func(...string) []byte) {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true,
				BlockFragment: fields(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/a", "x", "y")})
		},
		func(c *http2.Framer, fields func(...string) []byte) {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, PadLength: 3, Priority: http2.PriorityParam{Weight: 1},
				BlockFragment: fields(":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/a", "content-length", "3")})
			c.WriteDataPadded(1, false, []byte("abc"), make([]byte, 5))
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: fields("t", "u")})
			c.WriteWindowUpdate(0, 10)
			c.WriteWindowUpdate(1, 10)
			c.WriteRSTStream(1, 8)
			c.WritePing(false, [8]byte{1})
		},
		func(c *http2.Framer, fields func(...string) []byte) {
			b := fields(":method", "GET", ":scheme", "http", ":authority", "h", ":path", "/../b")
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, EndStream: true, BlockFragment: b[:2]})
			c.WriteContinuation(3, true, b[2:])
			c.WriteGoAway(0, 0, []byte("bye"))
		},
	} {
		var out, block bytes.Buffer
		c, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
		c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5})
		send(c, func(pairs ...string) []byte {
			block.Reset()
			for i := 0; i < len(pairs); i += 2 {
				encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
			}
			return bytes.Clone(block.Bytes())
		})
		f.Add(out.Bytes())
	}
	rules, err := httpproxy.Compile([]model.HTTPRule{{Path: "/a.*"}, {Headers: []model.HTTPHeader{{Name: "x", AnyValue: true}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var allowed []string
		client := newMemory(append([]byte(http2.ClientPreface), in...))
		ours, theirs := net.Pipe()
		received := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(theirs)
			received <- b
		}()
		dialled := false
		s := &Session{
			Dial: func(context.Context) (net.Conn, error) { dialled = true; return ours, nil },
			Decide: func(r *httpproxy.Request) httpproxy.Reason {
				reason := rules.Decide(r)
				if reason == "" {
					allowed = append(allowed, r.Method+" "+r.Host+" "+r.Path)
				}
				return reason
			},
			Limits: Limits{Linger: time.Second},
		}
		s.Serve(t.Context(), bufconn.New(client, new(atomic.Uint32), bufconn.Unlimited{}))
		ours.Close()
		got := <-received
		theirs.Close()
		checkFrames(t, client.out.Bytes())
		if !dialled || len(got) == 0 {
			return
		}
		rest, ok := bytes.CutPrefix(got, []byte(http2.ClientPreface))
		if !ok {
			t.Fatalf("the server has got no preface: %q", got)
		}
		if requests := checkFrames(t, rest); strings.Join(requests, "\n") != strings.Join(allowed, "\n") {
			t.Errorf("the server has got %q, allowed was %q", requests, allowed)
		}
	})
}

// checkFrames reads what the proxy has sent, and returns the requests in it.
func checkFrames(t *testing.T, b []byte) (requests []string) {
	t.Helper()
	r := http2.NewFramer(io.Discard, bytes.NewReader(b))
	r.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := r.ReadFrame()
		if err == io.EOF {
			return requests
		}
		if err != nil {
			t.Fatalf("the proxy has sent an invalid frame: %v", err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.PseudoValue("method") != "" {
			host := h.PseudoValue("authority")
			if host == "" {
				for _, field := range h.Fields {
					if field.Name == "host" {
						host = field.Value
					}
				}
			}
			request, _ := httpproxy.NewRequest(h.PseudoValue("method"), h.PseudoValue("path"), host, nil)
			requests = append(requests, request.Method+" "+request.Host+" "+request.Path)
		}
	}
}

// FuzzServer has a server that answers one request with anything. The client gets valid frames.
func FuzzServer(f *testing.F) {
	var out, block bytes.Buffer
	c, encoder := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	encoder.WriteField(hpack.HeaderField{Name: "content-length", Value: "3"})
	c.WriteSettings()
	c.WriteSettingsAck()
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: block.Bytes()})
	c.WriteData(1, true, []byte("abc"))
	f.Add(out.Bytes())
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		client, proxy := net.Pipe()
		received := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(client)
			received <- b
		}()
		go func() {
			w := http2.NewFramer(client, nil)
			io.WriteString(client, http2.ClientPreface)
			w.WriteSettings()
			// :method GET, :scheme http, :path / and an :authority
			w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, EndStream: true, BlockFragment: []byte("\x82\x86\x84\x41\x01h")})
		}()
		s := &Session{
			Dial:   func(context.Context) (net.Conn, error) { return newMemory(in), nil },
			Decide: func(*httpproxy.Request) httpproxy.Reason { return "" },
			Limits: Limits{Linger: time.Millisecond},
		}
		s.Serve(t.Context(), bufconn.New(proxy, new(atomic.Uint32), bufconn.Unlimited{}))
		checkFrames(t, <-received)
		client.Close()
	})
}
