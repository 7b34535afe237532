package http2proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/proxytest"
)

// TestMemoryOfStreams: clients have as many streams as they may have, for long paths, to a server that never answers.
// Their memory is bounded; streams above that are refused, and there is room again when the connections have ended.
func TestMemoryOfStreams(t *testing.T) {
	const pairs, streams, room = 4, 250, 2 << 20 // the streams would hold 2.8 MiB
	memory := proxytest.NewMemory(room)
	p := startProxy(t, &proxy{server: rawServer(t, func(f *framer) { io.Copy(io.Discard, f.Conn) }), memory: memory})
	var clients []*framer
	for range pairs {
		c, err := net.Dial("tcp", p.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
			t.Fatal(err)
		}
		f := &framer{Framer: http2.NewFramer(c, c), Conn: c, t: t}
		f.encoder = hpack.NewEncoder(&f.block)
		f.must(f.WriteSettings())
		go io.Copy(io.Discard, c)
		clients = append(clients, f)
		for i := range uint32(streams) {
			path := fmt.Sprintf("/%06d%s", i, strings.Repeat("x", 2030))
			f.head(2*i+1, false, ":method", "POST", ":scheme", "http", ":authority", fmt.Sprintf("h%06d", i)+strings.Repeat("y", 240), ":path", path)
		}
	}
	proxytest.Eventually(t, "a stream is refused", func() bool {
		for _, r := range p.recorded(0) {
			if r.Reason == httpproxy.ReasonMemory && r.Verdict == httpproxy.Refused {
				return true
			}
		}
		return false
	})
	for _, f := range clients {
		for i := range uint32(streams) {
			f.must(f.WriteRSTStream(2*i+1, http2.ErrCodeCancel))
		}
	}
	proxytest.Eventually(t, "nothing is held but buffers", func() bool { return memory.Left() >= room-4*pairs*bufconn.BufferSize })
}
