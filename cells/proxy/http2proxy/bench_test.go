package http2proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/policy/model"
)

// cannedServer answers each request with the same response, at little cost.
func cannedServer(t testing.TB, body int) string {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":status", Value: "200"}, {Name: "server", Value: "canned"}, {Name: "content-type", Value: "text/plain"},
		{Name: "content-length", Value: fmt.Sprint(body)}} {
		f.Sensitive = true // so that the block is the same each time
		e.WriteField(f)
	}
	text := []byte(strings.Repeat("x", body))
	return plainServer(t, func(c net.Conn) {
		r, w := bufio.NewReader(c), bufio.NewWriter(c)
		if _, err := io.ReadFull(r, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(w, r)
		f.SetReuseFrames()
		f.WriteSettings()
		for {
			if r.Buffered() == 0 && w.Flush() != nil {
				return
			}
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: block.Bytes(), EndHeaders: true})
				f.WriteData(frame.StreamID, true, text)
			}
		}
	})
}

// benchClient has a number of requests on their way at a time on one connection.
type benchClient struct {
	conn    net.Conn
	r       *bufio.Reader
	w       *bufio.Writer
	framer  *http2.Framer
	block   []byte
	stream  uint32
	streams int
}

func newBenchClient(b *testing.B, address string, streams int) *benchClient {
	b.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	c := &benchClient{conn: conn, r: bufio.NewReaderSize(conn, 64<<10), w: bufio.NewWriterSize(conn, 64<<10), stream: 1, streams: streams}
	c.framer = http2.NewFramer(c.w, c.r)
	c.framer.SetReuseFrames()
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "things.example.svc.cluster.local"},
		{Name: ":path", Value: "/api/v1/things/42?full=true"}, {Name: "user-agent", Value: "bench/1.0"}, {Name: "accept", Value: "*/*"},
		{Name: "accept-encoding", Value: "gzip, deflate"}, {Name: "authorization", Value: "Bearer 0123456789abcdef0123456789abcdef"},
		{Name: "x-request-id", Value: "7d1f9c1e-6f5b-4b0c-9f5e-1a2b3c4d5e6f"},
	} {
		f.Sensitive = true // so that the block is the same each time
		e.WriteField(f)
	}
	c.block = block.Bytes()
	c.w.WriteString(http2.ClientPreface)
	c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 24})
	c.framer.WriteWindowUpdate(0, 1<<30)
	return c
}

func (c *benchClient) send() {
	c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.block, EndHeaders: true, EndStream: true})
	c.stream += 2
}

// run sends requests while left says so, and reads all answers.
func (c *benchClient) run(left *atomic.Int64) error {
	open := 0
	for open < c.streams && left.Add(-1) >= 0 {
		c.send()
		open++
	}
	received := 0
	for open > 0 {
		if c.r.Buffered() == 0 {
			if err := c.w.Flush(); err != nil {
				return err
			}
		}
		f, err := c.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				c.framer.WriteSettingsAck()
			}
		case *http2.DataFrame:
			if received += len(f.Data()); received > 1<<28 {
				c.framer.WriteWindowUpdate(0, uint32(received))
				received = 0
			}
			if !f.StreamEnded() {
				continue
			}
			if open--; left.Add(-1) >= 0 {
				c.send()
				open++
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return fmt.Errorf("%v", f)
		}
	}
	return nil
}

// load sends b.N requests, and reports requests per second and per second of this process's CPU time, which client and
// server share.
func load(b *testing.B, address string, conns, streams int) {
	b.Helper()
	clients := make([]*benchClient, conns)
	for i := range clients {
		clients[i] = newBenchClient(b, address, streams)
	}
	var left atomic.Int64
	run := func(n int) {
		left.Store(int64(n))
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				if err := c.run(&left); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	run(conns)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	run(b.N)
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/request")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProxy compares requests through the proxy with direct ones.
func BenchmarkProxy(b *testing.B) {
	for _, body := range []int{100, 16 << 10} {
		for _, c := range []struct{ conns, streams int }{{1, 1}, {1, 50}, {16, 10}} {
			name := func(of string) string {
				return fmt.Sprintf("%s/body=%d/conns=%d/streams=%d", of, body, c.conns, c.streams)
			}
			b.Run(name("porin"), func(b *testing.B) {
				p := startProxy(b, &proxy{server: cannedServer(b, body), quiet: true})
				p.allow(model.HTTPRule{Method: "GET", Path: "/api/v[0-9]+/.*", Host: `things\.example\..*`})
				load(b, p.address(), c.conns, c.streams)
			})
			b.Run(name("direct"), func(b *testing.B) { load(b, cannedServer(b, body), c.conns, c.streams) })
		}
	}
}
