package http2proxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/proxytest"
)

// TestRequestRefused has heads of requests that are not forwarded. The connection goes on.
func TestRequestRefused(t *testing.T) {
	p := newProxy(t, httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if n := r.Header.Get("Content-Length"); r.URL.Path != "/fine" || n != "" && n != "0" {
			t.Errorf("the server has got %s %s %s %v", r.Method, r.Host, r.RequestURI, r.Header)
		}
	}), Limits{})
	method, scheme, authority, path := []string{":method", "GET"}, []string{":scheme", "http"}, []string{":authority", "h"}, []string{":path", "/x"}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	with := func(more ...string) []string { return join(method, scheme, authority, path, more) }
	c := p.dial()
	stream, n := uint32(1), 0
	for _, tt := range []struct {
		name   string
		fields []string
		reason httpproxy.Reason
		status string // empty: RST_STREAM
	}{
		{"no method", join(scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"no path", join(method, scheme, authority), httpproxy.ReasonPseudoHeader, ""},
		{"no scheme", join(method, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"another scheme", join(method, []string{":scheme", "ftp"}, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"two methods", join(method, method, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"two paths", join(method, scheme, authority, path, path), httpproxy.ReasonPseudoHeader, ""},
		{"two authorities", join(method, scheme, authority, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"two schemes", join(method, scheme, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"a pseudo-header after others", join(method, scheme, authority, []string{"a", "b"}, path), httpproxy.ReasonPseudoHeader, ""},
		{"an unknown pseudo-header", join(method, []string{":other", "x"}, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"a status", join(method, []string{":status", "200"}, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"an empty method", join([]string{":method", ""}, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"a protocol without CONNECT", join(method, []string{":protocol", "websocket"}, scheme, authority, path), httpproxy.ReasonPseudoHeader, ""},
		{"CONNECT", join([]string{":method", "CONNECT"}, authority), httpproxy.ReasonConnect, "405"},
		{"extended CONNECT", join([]string{":method", "CONNECT", ":protocol", "websocket"}, scheme, authority, path), httpproxy.ReasonConnect, "405"},
		{"an invalid method", join([]string{":method", "GET /"}, scheme, authority, path), httpproxy.ReasonRequestLine, "400"},
		{"no authority", join(method, scheme, path), httpproxy.ReasonMissingHost, "400"},
		{"a user in the authority", join(method, scheme, []string{":authority", "a@h"}, path), httpproxy.ReasonHost, "400"},
		{"two hosts", join(method, scheme, path, []string{"host", "a", "host", "a"}), httpproxy.ReasonHost, "400"},
		{"host is not authority", with("host", "other"), httpproxy.ReasonHostMismatch, "400"},
		{"a relative path", join(method, scheme, authority, []string{":path", "x"}), httpproxy.ReasonTarget, "400"},
		{"an absolute URI as path", join(method, scheme, authority, []string{":path", "http://h/x"}), httpproxy.ReasonTarget, "400"},
		{"a blank in the path", join(method, scheme, authority, []string{":path", "/x HTTP/1.1\r\nA: b"}), httpproxy.ReasonTarget, "400"},
		{"a fragment in the path", join(method, scheme, authority, []string{":path", "/x#y"}), httpproxy.ReasonTarget, "400"},
		{"an incomplete escape", join(method, scheme, authority, []string{":path", "/x%2"}), httpproxy.ReasonTarget, "400"},
		{"* without OPTIONS", join(method, scheme, authority, []string{":path", "*"}), httpproxy.ReasonTarget, "400"},
		{"connection", with("connection", "x"), httpproxy.ReasonHeader, ""},
		{"keep-alive", with("keep-alive", "x"), httpproxy.ReasonHeader, ""},
		{"proxy-connection", with("proxy-connection", "x"), httpproxy.ReasonHeader, ""},
		{"transfer-encoding", with("transfer-encoding", "chunked"), httpproxy.ReasonHeader, ""},
		{"length by another name", with("content_length", "0"), httpproxy.ReasonHeader, ""},
		{"transfer-encoding by another name", with("transfer_encoding", "chunked"), httpproxy.ReasonHeader, ""},
		{"upgrade", with("upgrade", "websocket"), httpproxy.ReasonHeader, ""},
		{"te", with("te", "gzip"), httpproxy.ReasonHeader, ""},
		{"upper case", with("Name", "x"), httpproxy.ReasonHeader, ""},
		{"an empty name", with("", "x"), httpproxy.ReasonHeader, ""},
		{"a blank in the name", with("a b", "x"), httpproxy.ReasonHeader, ""},
		{"a colon in the name", with("a:b", "x"), httpproxy.ReasonHeader, ""},
		{"a line feed in the value", with("a", "x\ny: z"), httpproxy.ReasonHeader, ""},
		{"a NUL in the value", with("a", "x\x00y"), httpproxy.ReasonHeader, ""},
		{"a blank before the value", with("a", " x"), httpproxy.ReasonHeader, ""},
		{"a blank after the value", with("a", "x\t"), httpproxy.ReasonHeader, ""},
		{"two lengths", with("content-length", "0", "content-length", "0"), httpproxy.ReasonLength, ""},
		{"a signed length", with("content-length", "+1"), httpproxy.ReasonLength, ""},
		{"a length without body", with("content-length", "1"), httpproxy.ReasonLengthMismatch, ""},
		{"too many headers", with(strings.Split(strings.Repeat("a,b,", 130), ",")[:260]...), httpproxy.ReasonHeadTooLarge, "431"},
		{"a header too large", with("a", strings.Repeat("x", 60<<10), "b", strings.Repeat("x", 10<<10)), httpproxy.ReasonHeadTooLarge, "431"},
	} {
		block := c.fields(tt.fields...)
		first := block[:min(len(block), maxPayload)]
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(first) == len(block)}))
		for rest := block[len(first):]; len(rest) > 0; {
			k := min(len(rest), maxPayload)
			c.must(c.WriteContinuation(stream, k == len(rest), rest[:k]))
			rest = rest[k:]
		}
		if tt.status == "" {
			c.expectReset(stream, http2.ErrCodeProtocol)
		} else {
			c.expectStatus(stream, tt.status)
		}
		n++
		if got := p.lastReason(n); got != tt.reason {
			t.Errorf("%s: reason %q, want %q", tt.name, got, tt.reason)
		}
		stream += 2
	}
	for _, more := range [][]string{{"host", "H.example"}, {"te", "trailers"}, {"content-length", "0"}, {"content-length", "000"}, {"cookie", "a=b", "cookie", "c=d"}, {"x", ""}} {
		c.get(stream, "/fine", more...)
		c.expectStatus(stream, "200")
		stream += 2
	}
}

// TestConnectionRefused has what ends a client's whole connection.
func TestConnectionRefused(t *testing.T) {
	server := httpServer(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	raw := func(c *framer, kind http2.FrameType, flags http2.Flags, stream uint32, payload string) {
		c.must(c.WriteRawFrame(kind, flags, stream, []byte(payload)))
	}
	for _, tt := range []struct {
		name string
		send func(c *framer)
		code http2.ErrCode
	}{
		{"a frame too large", func(c *framer) { c.Conn.Write([]byte{0, 0x40, 1, 0, 0, 0, 0, 0, 1}) }, http2.ErrCodeFrameSize},
		{"an even stream", func(c *framer) { c.get(2, "/") }, http2.ErrCodeProtocol},
		{"HEADERS of no stream", func(c *framer) { raw(c, http2.FrameHeaders, 4, 0, "") }, http2.ErrCodeProtocol},
		{"DATA of no stream", func(c *framer) { raw(c, http2.FrameData, 0, 0, "x") }, http2.ErrCodeProtocol},
		{"DATA of an idle stream", func(c *framer) { raw(c, http2.FrameData, 0, 7, "x") }, http2.ErrCodeProtocol},
		{"padding too long", func(c *framer) { c.post(1, "/"); raw(c, http2.FrameData, http2.FlagDataPadded, 1, "\x05xx") }, http2.ErrCodeProtocol},
		{"RST_STREAM of an idle stream", func(c *framer) { raw(c, http2.FrameRSTStream, 0, 1, "\x00\x00\x00\x00") }, http2.ErrCodeProtocol},
		{"a short RST_STREAM", func(c *framer) { c.post(1, "/"); raw(c, http2.FrameRSTStream, 0, 1, "\x00") }, http2.ErrCodeFrameSize},
		{"WINDOW_UPDATE by nothing", func(c *framer) { raw(c, http2.FrameWindowUpdate, 0, 0, "\x00\x00\x00\x00") }, http2.ErrCodeProtocol},
		{"WINDOW_UPDATE of an idle stream", func(c *framer) { raw(c, http2.FrameWindowUpdate, 0, 1, "\x00\x00\x00\x01") }, http2.ErrCodeProtocol},
		{"a window too large", func(c *framer) { raw(c, http2.FrameWindowUpdate, 0, 0, "\x7f\xff\xff\xff") }, http2.ErrCodeFlowControl},
		{"an initial window too large", func(c *framer) {
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}))
		}, http2.ErrCodeFlowControl},
		{"a frame size too small", func(c *framer) {
			c.must(c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1}))
		}, http2.ErrCodeProtocol},
		{"half a setting", func(c *framer) { raw(c, http2.FrameSettings, 0, 0, "xxx") }, http2.ErrCodeFrameSize},
		{"SETTINGS of a stream", func(c *framer) { raw(c, http2.FrameSettings, 0, 1, "") }, http2.ErrCodeProtocol},
		{"an acknowledgement too many", func(c *framer) { c.must(c.WriteSettingsAck()); c.must(c.WriteSettingsAck()) }, http2.ErrCodeProtocol},
		{"a short PING", func(c *framer) { raw(c, http2.FramePing, 0, 0, "x") }, http2.ErrCodeFrameSize},
		{"PUSH_PROMISE", func(c *framer) { raw(c, http2.FramePushPromise, 4, 1, "\x00\x00\x00\x02") }, http2.ErrCodeProtocol},
		{"CONTINUATION of nothing", func(c *framer) { raw(c, http2.FrameContinuation, 4, 1, "") }, http2.ErrCodeProtocol},
		{"a frame within a header block", func(c *framer) {
			raw(c, http2.FrameHeaders, 0, 1, "")
			raw(c, http2.FramePing, 0, 0, "12345678")
		}, http2.ErrCodeProtocol},
		{"CONTINUATION of another stream", func(c *framer) {
			raw(c, http2.FrameHeaders, 0, 1, "")
			raw(c, http2.FrameContinuation, 4, 3, "")
		}, http2.ErrCodeProtocol},
		{"no header block", func(c *framer) { raw(c, http2.FrameHeaders, 4, 1, "\xff\xff\xff\xff") }, http2.ErrCodeCompression},
		{"half a header block", func(c *framer) { raw(c, http2.FrameHeaders, 4, 1, "\x00\x05ab") }, http2.ErrCodeCompression},
		{"a header block too large", func(c *framer) {
			raw(c, http2.FrameHeaders, 0, 1, "")
			for range 5 {
				raw(c, http2.FrameContinuation, 0, 1, strings.Repeat("\x82", maxPayload))
			}
		}, http2.ErrCodeEnhanceYourCalm},
		{"a slow header block", func(c *framer) { raw(c, http2.FrameHeaders, 0, 1, "\x82") }, http2.ErrCodeEnhanceYourCalm},
		{"a slow frame", func(c *framer) { c.Conn.Write([]byte{0, 0}) }, http2.ErrCodeEnhanceYourCalm},
		{"empty CONTINUATION frames", func(c *framer) {
			raw(c, http2.FrameHeaders, 0, 1, "")
			flood(c, func() error { return c.WriteContinuation(1, false, nil) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"pings", func(c *framer) { flood(c, func() error { return c.WritePing(false, [8]byte{}) }) }, http2.ErrCodeEnhanceYourCalm},
		{"SETTINGS", func(c *framer) { flood(c, func() error { return c.WriteSettings() }) }, http2.ErrCodeEnhanceYourCalm},
		{"PRIORITY", func(c *framer) {
			flood(c, func() error { return c.WritePriority(1, http2.PriorityParam{StreamDep: 3}) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"empty DATA", func(c *framer) {
			c.post(1, "/")
			flood(c, func() error { return c.WriteData(1, false, nil) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"padding alone", func(c *framer) {
			c.post(1, "/")
			flood(c, func() error { return c.WriteDataPadded(1, false, nil, make([]byte, 10)) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"WINDOW_UPDATE", func(c *framer) {
			flood(c, func() error { return c.WriteWindowUpdate(0, 1) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"WINDOW_UPDATE of a stream", func(c *framer) {
			c.post(1, "/")
			flood(c, func() error { return c.WriteWindowUpdate(1, 1) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"DATA of a stream that the client has ended", func(c *framer) {
			c.get(1, "/")
			c.expectStatus(1, "200")
			flood(c, func() error { return c.WriteData(1, false, []byte("x")) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"DATA of a stream that was reset", func(c *framer) {
			c.post(1, "/", "connection", "x")
			flood(c, func() error { return c.WriteData(1, false, []byte("x")) })
		}, http2.ErrCodeEnhanceYourCalm},
		{"HEADERS of a stream that was reset", func(c *framer) {
			c.post(1, "/", "connection", "x")
			flood(c, func() error {
				return c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
			})
		}, http2.ErrCodeEnhanceYourCalm},
		{"HEADERS of a stream that has ended", func(c *framer) {
			c.get(1, "/")
			c.expectStatus(1, "200")
			c.get(1, "/")
		}, http2.ErrCodeProtocol},
		{"HEADERS of a stream that the client has reset", func(c *framer) {
			c.post(1, "/")
			c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
			c.get(1, "/")
		}, http2.ErrCodeProtocol},
		{"a stream number below the last one", func(c *framer) { c.get(5, "/"); c.get(3, "/") }, http2.ErrCodeProtocol},
		{"rapid reset", func(c *framer) {
			id := uint32(1)
			flood(c, func() error {
				c.block.Reset()
				block := c.fields(":method", "POST", ":scheme", "http", ":authority", "h", ":path", "/")
				c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
				err := c.WriteRSTStream(id, http2.ErrCodeCancel)
				id += 2
				return err
			})
		}, http2.ErrCodeEnhanceYourCalm},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProxy(t, server, Limits{Frame: 200 * time.Millisecond, Linger: 100 * time.Millisecond})
			c := p.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			c.t = t
			tt.send(c)
			// A flood may go on beyond the answer, so it is the proxy's view that counts.
			if err := p.ended(1)[0]; err == nil || !strings.Contains(err.Error(), tt.code.String()) {
				t.Errorf("the session ended with %v, want %v", err, tt.code)
			}
			if reason := p.lastReason(1); reason == "" {
				t.Error("no reason was recorded")
			}
		})
	}
}

// flood sends until the proxy does not take it any more.
func flood(c *framer, send func() error) {
	go io.Copy(io.Discard, c.Conn)
	for range 200_000 {
		if send() != nil {
			return
		}
	}
	c.t.Error("the proxy has taken everything")
}

func TestGoAwayOnError(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	c := p.dial()
	c.get(1, "/")
	c.expectStatus(1, "200")
	c.must(c.WriteRawFrame(http2.FramePing, 0, 0, []byte("short")))
	if g := c.expectGoAway(http2.ErrCodeFrameSize); g.LastStreamID != 1 {
		t.Errorf("last stream %d", g.LastStreamID)
	}
}

// TestFinishedStreams has frames of streams that are over. Those that the client may have sent before it knew are no
// fault.
func TestFinishedStreams(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Path: "/fine"})
	c := p.dial()
	id := uint32(1)
	c.must(c.WriteWindowUpdate(0, 1<<20))
	for range 3000 { // more than a peer may send without use
		c.post(id, "/denied")
		c.must(c.WriteData(id, false, make([]byte, 2000)))
		c.must(c.WriteWindowUpdate(id, 1))
		if id%8 == 1 {
			c.must(c.WriteData(id, true, []byte("x")))
		} else {
			c.head(id, true, "x-trailer", "x")
		}
		c.expectStatus(id, "403")
		c.expectReset(id, http2.ErrCodeNo)
		c.get(id+2, "/fine")
		c.expectStatus(id+2, "200")
		id += 4
	}
	c.must(c.WriteData(id-4, false, []byte("x"))) // the client had ended it
	c.expectReset(id-4, http2.ErrCodeStreamClosed)
	c.post(id, "/fine")
	c.must(c.WriteRSTStream(id, http2.ErrCodeCancel))
	c.must(c.WriteData(id, false, []byte("x")))
	c.expectReset(id, http2.ErrCodeStreamClosed)
	c.get(id+2, "/fine")
	c.expectStatus(id+2, "200")
}

// TestManyWindowUpdates has a client that takes what it gets by small pieces, and says so each time, for the stream and
// the connection.
func TestManyWindowUpdates(t *testing.T) {
	const size = 8 << 20
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) }), Limits{})
	c := p.dial()
	c.get(1, "/")
	for got := 0; got < size; {
		n := len(c.next(http2.FrameData).(*http2.DataFrame).Data())
		for left := n; left > 0; left -= 512 {
			c.must(c.WriteWindowUpdate(0, uint32(min(left, 512))))
			c.must(c.WriteWindowUpdate(1, uint32(min(left, 512))))
		}
		got += n
	}
}

// TestServerFloods has a server that sends what moves nothing.
func TestServerFloods(t *testing.T) {
	for name, send := range map[string]func(f *framer) error{
		"HEADERS": func(f *framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: f.fields(":status", "200"), EndHeaders: true})
		},
		"DATA":          func(f *framer) error { return f.WriteData(1, false, []byte("x")) },
		"WINDOW_UPDATE": func(f *framer) error { return f.WriteWindowUpdate(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, rawServer(t, func(f *framer) {
				f.headers()
				f.next(http2.FrameRSTStream)
				flood(f, func() error { return send(f) })
			}), Limits{})
			c := p.dial()
			c.get(1, "/")
			c.must(c.WriteRSTStream(1, http2.ErrCodeCancel))
			c.expectGoAway(http2.ErrCodeNo)
		})
	}
}

func TestTooManyStreams(t *testing.T) {
	release := make(chan struct{})
	p := newProxy(t, httpServer(t, func(http.ResponseWriter, *http.Request) { <-release }), Limits{Streams: 10})
	c := p.dial()
	for i := range uint32(11) {
		c.get(2*i+1, "/")
	}
	c.expectReset(21, http2.ErrCodeRefusedStream)
	if reason := p.lastReason(1); reason != httpproxy.ReasonTooManyStreams {
		t.Error(reason)
	}
	close(release)
	for range 10 {
		c.headers()
	}
	c.get(23, "/")
	c.expectStatus(23, "200")
}

// TestLengthMismatch has bodies that are not as long as was announced.
func TestLengthMismatch(t *testing.T) {
	p := newProxy(t, httpServer(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("the server has got a whole request")
		}
	}), Limits{})
	c := p.dial()
	c.post(1, "/", "content-length", "3")
	c.must(c.WriteData(1, false, []byte("1234")))
	c.expectReset(1, http2.ErrCodeProtocol)
	c.post(3, "/", "content-length", "3")
	c.must(c.WriteData(3, true, []byte("12")))
	c.expectReset(3, http2.ErrCodeProtocol)
	c.post(5, "/", "content-length", "3")
	c.must(c.WriteData(5, false, []byte("12")))
	c.head(5, true, "x-trailer", "y")
	c.expectReset(5, http2.ErrCodeProtocol)
	c.post(7, "/")
	c.head(7, true, "content-length", "0")
	c.expectReset(7, http2.ErrCodeProtocol)
	c.post(9, "/")
	c.head(9, true, ":path", "/other")
	c.expectReset(9, http2.ErrCodeProtocol)
	for i, r := range p.recorded(5) {
		if want := httpproxy.ReasonLengthMismatch; i < 3 && r.Reason != want || i >= 3 && r.Reason != httpproxy.ReasonTrailer {
			t.Errorf("record %d: %v", i, r)
		}
	}
}

// TestDeniedBodyGivesWindowBack sends more to denied requests than the connection's window.
func TestDeniedBodyGivesWindowBack(t *testing.T) {
	p := newProxy(t, httpServer(t, echo), Limits{})
	p.allow(model.HTTPRule{Path: "/fine"})
	c := p.dial()
	window, id := 65535, uint32(1)
	for range 50 {
		c.post(id, "/denied")
		for range 3 {
			c.must(c.WriteDataPadded(id, false, make([]byte, 10_000), make([]byte, 100)))
			window -= 10_101
		}
		c.expectStatus(id, "403")
		c.expectReset(id, http2.ErrCodeNo)
		for window < 40_000 {
			if u := c.next(http2.FrameWindowUpdate).(*http2.WindowUpdateFrame); u.StreamID == 0 {
				window += int(u.Increment)
			}
		}
		id += 2
	}
	c.get(id, "/fine")
	c.expectStatus(id, "200")
}

// TestServerFaults has servers that do not speak HTTP/2, or not well.
func TestServerFaults(t *testing.T) {
	const silent = "silent"
	ok := func(f *framer, stream uint32) { f.head(stream, true, ":status", "200") }
	for _, tt := range []struct {
		name   string
		server string
		status string
		reason httpproxy.Reason
	}{
		{"HTTP/1 only", plainServer(t, func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			io.Copy(io.Discard, c)
		}), "502", httpproxy.ReasonServerNotHTTP2},
		{"a server that speaks first", plainServer(t, func(c net.Conn) {
			io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n")
			io.Copy(io.Discard, c)
		}), "502", httpproxy.ReasonServerNotHTTP2},
		{silent, plainServer(t, func(c net.Conn) { io.Copy(io.Discard, c) }), "502", httpproxy.ReasonServerNotHTTP2},
		{"closes at once", plainServer(t, func(c net.Conn) {}), "502", httpproxy.ReasonServerClosed},
		{"closes", rawServer(t, func(f *framer) { f.headers() }), "502", httpproxy.ReasonServerClosed},
		{"no status", rawServer(t, func(f *framer) { f.headers(); f.head(1, true, "a", "b"); io.Copy(io.Discard, f.Conn) }), "502", httpproxy.ReasonResponse},
		{"two statuses", rawServer(t, func(f *framer) {
			f.headers()
			f.head(1, true, ":status", "200", ":status", "200")
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
		{"connection", rawServer(t, func(f *framer) {
			f.headers()
			f.head(1, true, ":status", "200", "connection", "close")
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
		{"switches protocols", rawServer(t, func(f *framer) {
			f.headers()
			f.head(1, false, ":status", "101")
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonUpgrade},
		{"interim responses without end", rawServer(t, func(f *framer) {
			f.headers()
			for range 33 {
				f.head(1, false, ":status", "103")
			}
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonTooManyInterims},
		{"DATA before the head", rawServer(t, func(f *framer) {
			f.headers()
			f.must(f.WriteData(1, true, []byte("x")))
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
		{"a length without body", rawServer(t, func(f *framer) {
			f.headers()
			f.head(1, true, ":status", "200", "content-length", "5")
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
		{"a stream that nobody began", rawServer(t, func(f *framer) { f.headers(); ok(f, 3); io.Copy(io.Discard, f.Conn) }), "502", httpproxy.ReasonResponse},
		{"PUSH_PROMISE", rawServer(t, func(f *framer) {
			f.headers()
			f.must(f.WriteRawFrame(http2.FramePushPromise, 4, 1, []byte("\x00\x00\x00\x02")))
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
		{"a frame too large", rawServer(t, func(f *framer) {
			f.headers()
			f.Conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 0, 1})
			io.Copy(io.Discard, f.Conn)
		}), "502", httpproxy.ReasonResponse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var limits Limits
			if tt.name == silent { // the others have the time that a busy machine needs
				limits.Handshake = 2 * time.Second
			}
			p := newProxy(t, tt.server, limits)
			c := p.dial()
			c.t = t
			c.get(1, "/")
			for {
				if h := c.headers(); h.PseudoValue("status") != "103" {
					if got := h.PseudoValue("status"); got != tt.status || value(h, "proxy-status") == "" {
						t.Errorf("%v, want %s", h.Fields, tt.status)
					}
					break
				}
			}
			if got := p.lastReason(1); got != tt.reason {
				t.Errorf("reason %q, want %q", got, tt.reason)
			}
		})
	}
}

// TestDialledServerSpeaksOrCloses has a server, dialled for a request, that says something before it can have read
// that, or closes. The client gets 502, and not only the end of its connection.
func TestDialledServerSpeaksOrCloses(t *testing.T) {
	for _, said := range []string{"SSH-2.0-OpenSSH_9.9\r\n", ""} {
		server := plainServer(t, func(c net.Conn) {
			io.WriteString(c, said)
			c.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, c)
		})
		p := startProxy(t, &proxy{server: server, dialed: proxytest.WaitForData})
		for range 300 {
			c := p.dial()
			c.get(1, "/")
			c.expectStatus(1, "502")
			c.Conn.Close()
		}
	}
}

// TestServerDies resets a response that has begun.
func TestServerDies(t *testing.T) {
	p := newProxy(t, rawServer(t, func(f *framer) {
		f.headers()
		f.head(1, false, ":status", "200", "content-length", "5")
		f.must(f.WriteData(1, false, []byte("12")))
	}), Limits{})
	c := p.dial()
	c.get(1, "/")
	c.expectStatus(1, "200")
	c.expectReset(1, http2.ErrCodeInternal)
	c.expectGoAway(http2.ErrCodeNo)
}

// TestServerResets passes RST_STREAM, GOAWAY and PING on.
func TestServerResets(t *testing.T) {
	p := newProxy(t, rawServer(t, func(f *framer) {
		f.headers()
		f.must(f.WriteRSTStream(1, http2.ErrCodeRefusedStream))
		f.headers()
		f.must(f.WritePing(false, [8]byte{7}))
		f.next(http2.FramePing)
		f.must(f.WriteGoAway(3, http2.ErrCodeEnhanceYourCalm, []byte("too_many_pings")))
		f.head(3, true, ":status", "204")
		io.Copy(io.Discard, f.Conn)
	}), Limits{})
	c := p.dial()
	c.get(1, "/")
	c.expectReset(1, http2.ErrCodeRefusedStream)
	c.get(3, "/")
	ping := c.next(http2.FramePing).(*http2.PingFrame)
	c.must(c.WritePing(true, ping.Data))
	g := c.next(http2.FrameGoAway).(*http2.GoAwayFrame)
	if ping.Data != [8]byte{7} || g.LastStreamID != 3 || g.ErrCode != http2.ErrCodeEnhanceYourCalm || string(g.DebugData()) != "too_many_pings" {
		t.Errorf("%v, %v", ping, g)
	}
	c.expectStatus(3, "204")
	p.ended(1)
	if reason := p.recorded(1)[0].Reason; reason != httpproxy.ReasonCanceledByServer {
		t.Error(reason)
	}
}

// TestClientResets passes the code on.
func TestClientResets(t *testing.T) {
	code := make(chan http2.ErrCode, 1)
	p := newProxy(t, rawServer(t, func(f *framer) {
		code <- f.next(http2.FrameRSTStream).(*http2.RSTStreamFrame).ErrCode
		io.Copy(io.Discard, f.Conn)
	}), Limits{})
	c := p.dial()
	c.get(1, "/")
	c.must(c.WriteRSTStream(1, http2.ErrCode(0x1234)))
	if got := <-code; got != 0x1234 {
		t.Error(got)
	}
	if reason := p.lastReason(1); reason != httpproxy.ReasonCanceledByClient {
		t.Error(reason)
	}
}

// TestSettings passes those on that concern the other peer, and acknowledges when that has done so.
func TestSettings(t *testing.T) {
	got, ack := make(chan map[http2.SettingID]uint32, 1), make(chan struct{})
	p := newProxy(t, rawServer(t, func(f *framer) {
		first, err := f.ReadFrame()
		if err != nil {
			t.Error(err)
			return
		}
		got <- settingsOf(first.(*http2.SettingsFrame))
		f.must(f.WriteSettingsAck())
		for {
			next, err := f.ReadFrame()
			if err != nil {
				return
			}
			if s, ok := next.(*http2.SettingsFrame); ok && s.IsAck() {
				close(ack)
			}
		}
	}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7},
		http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}), Limits{})
	c := p.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 1000})
	c.get(1, "/")
	first := <-got
	want := map[http2.SettingID]uint32{http2.SettingEnablePush: 0, http2.SettingInitialWindowSize: 1 << 20, http2.SettingMaxHeaderListSize: 1000}
	if d := cmp.Diff(want, first); d != "" {
		t.Error(d)
	}
	want = map[http2.SettingID]uint32{http2.SettingInitialWindowSize: 10, http2.SettingMaxConcurrentStreams: 7}
	for {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		s, ok := f.(*http2.SettingsFrame)
		if !ok || s.IsAck() {
			continue
		}
		select {
		case <-ack:
			t.Error("acknowledged before the client has")
		default:
		}
		relayed := settingsOf(s)
		c.must(c.WriteSettingsAck())
		if _, ok := relayed[http2.SettingInitialWindowSize]; ok {
			if d := cmp.Diff(want, relayed); d != "" {
				t.Error(d)
			}
			break
		}
	}
	<-ack
}

func settingsOf(f *http2.SettingsFrame) map[http2.SettingID]uint32 {
	all := map[http2.SettingID]uint32{}
	f.ForeachSetting(func(s http2.Setting) error {
		all[s.ID] = s.Val
		return nil
	})
	return all
}

// TestStalledStream resets a stream without frames, and no other one.
func TestStalledStream(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			w.(http.Flusher).Flush()
		}
		if r.URL.Path != "/" {
			<-r.Context().Done()
		}
	}), Limits{Stall: 400 * time.Millisecond})
	c := p.dial()
	c.get(1, "/silent")
	c.get(3, "/begun")
	c.expectStatus(3, "200")
	seen := map[string]bool{}
	for len(seen) < 2 {
		switch f := c.next(http2.FrameHeaders, http2.FrameRSTStream).(type) {
		case *http2.MetaHeadersFrame:
			seen[fmt.Sprint(f.StreamID, " ", f.PseudoValue("status"))] = true
		case *http2.RSTStreamFrame:
			seen[fmt.Sprint(f.StreamID, " ", f.ErrCode)] = true
		}
	}
	if !seen["1 504"] || !seen["3 CANCEL"] {
		t.Error(seen)
	}
	c.get(5, "/")
	c.expectStatus(5, "200")
}

// TestPeerTakesNothing ends a connection whose client does not read.
func TestPeerTakesNothing(t *testing.T) {
	p := newProxy(t, httpServer(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, zeros{}) }), Limits{Write: 400 * time.Millisecond})
	c := p.dial(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	c.must(c.WriteWindowUpdate(0, 1<<30))
	c.get(1, "/")
	if err := p.ended(1)[0]; err == nil {
		t.Error("no error")
	}
}

// TestHostileMemory has streams as many, and with paths and methods as long, as a client may have.
func TestHostileMemory(t *testing.T) {
	for _, what := range []string{"path", "method"} {
		t.Run(what, func(t *testing.T) { hostileMemory(t, what) })
	}
}

func hostileMemory(t *testing.T, what string) {
	p := newProxy(t, rawServer(t, func(f *framer) { io.Copy(io.Discard, f.Conn) }), Limits{})
	c := p.dial()
	before := proxytest.MemoryInUse()
	for i := range uint32(250) {
		long := strings.Repeat("x", 15_000)
		if what == "path" {
			c.get(2*i+1, fmt.Sprint("/", i, "/", long))
		} else {
			c.head(2*i+1, true, ":method", fmt.Sprint(long, i), ":path", "/", ":scheme", "http", ":authority", "x")
		}
	}
	proxytest.Eventually(t, "all streams are there", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.sessions) == 0 {
			return false
		}
		s := p.sessions[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.streams) == 250
	})
	used := proxytest.MemoryInUse() - before
	t.Logf("%d bytes for 250 streams", used)
	if used > 2<<20 {
		t.Errorf("%d bytes for 250 streams", used)
	}
	runtime.KeepAlive(c)
}

// TestFrameHeader checks the reading of what http2.Framer writes.
func TestFrameHeader(t *testing.T) {
	b := appendFrameHeader(nil, 0x1234, http2.FrameData, 5, maxStream)
	f, n := parseFrameHeader(b)
	if n != 0x1234 || f.kind != http2.FrameData || f.flags != 5 || f.stream != maxStream || binary.BigEndian.Uint16(b[1:]) != 0x1234 {
		t.Errorf("%v, %d", f, n)
	}
}

// scarce is a memory that refuses so many times.
type scarce struct{ refuse atomic.Int32 }

func (m *scarce) Acquire(int) bool { return m.refuse.Add(-1) < 0 }
func (m *scarce) Release(int)      {}

// TestNoMemoryAtDial has no memory for the connection to the server: the request is told so, and the session ends.
func TestNoMemoryAtDial(t *testing.T) {
	memory := &scarce{}
	server := plainServer(t, func(c net.Conn) { http2.NewFramer(c, c).WriteSettings(); io.Copy(io.Discard, c) })
	p := startProxy(t, &proxy{server: server, memory: memory, dialed: func(net.Conn) error { memory.refuse.Store(1); return nil }})
	c := p.dial()
	c.get(1, "/")
	c.expectStatus(1, "503")
	c.expectGoAway(http2.ErrCodeNo)
	if reason := p.lastReason(1); reason != httpproxy.ReasonMemory {
		t.Errorf("reason %q", reason)
	}
}

// TestEndWhileDeciding has a server that speaks no HTTP/2, and a request that is decided about meanwhile: the client
// may try that one again.
func TestEndWhileDeciding(t *testing.T) {
	first := make(chan struct{})
	server := plainServer(t, func(c net.Conn) { <-first; io.WriteString(c, "SSH-2.0-OpenSSH_9.9\r\n"); io.Copy(io.Discard, c) })
	p := startProxy(t, &proxy{server: server, decide: func(s *Session, r *httpproxy.Request) httpproxy.Reason {
		if r.Path == "/second" {
			close(first)
			proxytest.Eventually(t, "the session ends", s.isEnding)
		}
		return ""
	}})
	c := p.dial()
	c.get(1, "/first")
	c.get(3, "/second")
	c.expectStatus(1, "502")
	if g := c.expectGoAway(http2.ErrCodeNo); g.LastStreamID != 1 {
		t.Errorf("last stream %d", g.LastStreamID)
	}
	for i, r := range p.recorded(2) {
		if want := []string{"/first", "/second"}[i]; r.Path != want || r.Reason != httpproxy.ReasonServerNotHTTP2 {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}
