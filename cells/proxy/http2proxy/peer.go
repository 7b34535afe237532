package http2proxy

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// peer is one of the two connections.
type peer struct {
	conn *bufconn.Conn

	// Of the goroutine that reads from it.
	used    int // bytes of the frame that was read last
	limited bool
	settled bool // SETTINGS were received
	decoder *hpack.Decoder
	block   *block // that is being read

	// Guarded by Session.mu.
	encoder *hpack.Encoder
	out     []byte // to be sent
	buffer  *bufconn.Buffer
	held    int       // bytes of memory for out
	writing time.Time // since when; zero: no write is under way
	err     error     // of a write
	unacked []bool    // SETTINGS that were sent; true: the other peer waits for the acknowledgement
	budget  frameBudget
}

// tableSize is the size of the compression tables, the default.
const tableSize = 4 << 10

func newPeer(c *bufconn.Conn) *peer {
	p := &peer{conn: c, budget: frameBudget{left: maxUseless, filled: time.Now()}}
	p.decoder = hpack.NewDecoder(tableSize, func(f hpack.HeaderField) { p.block.add(p.decoder, f) })
	p.encoder = hpack.NewEncoder((*output)(p))
	return p
}

// output appends what it is given to what is sent to the peer.
type output peer

func (o *output) Write(b []byte) (int, error) {
	o.out = append(o.out, b...)
	return len(b), nil
}

// room makes sure that there is a buffer.
func (p *peer) room() {
	if p.out == nil {
		p.buffer = bufconn.TakeBuffer()
		p.out = p.buffer.Bytes[:0]
		p.hold()
	}
}

// hold acquires memory for what is to be sent. Without it nothing can be sent any more.
func (p *peer) hold() {
	more := cap(p.out) - p.held
	switch {
	case more <= 0:
	case p.conn.Memory.Acquire(more):
		p.held += more
	case p.err == nil:
		p.err = bufconn.ErrMemory
	}
}

// clear removes what is to be sent.
func (p *peer) clear() {
	p.buffer.Release()
	p.conn.Memory.Release(p.held)
	p.out, p.buffer, p.held = nil, nil, 0
}

// begin appends a frame's header.
func (p *peer) begin(length int, kind http2.FrameType, flags http2.Flags, stream uint32) {
	p.room()
	p.out = appendFrameHeader(p.out, length, kind, flags, stream)
}

func (p *peer) data(stream uint32, b []byte, end bool) {
	var flags http2.Flags
	if end {
		flags = http2.FlagDataEndStream
	}
	p.begin(len(b), http2.FrameData, flags, stream)
	p.out = append(p.out, b...)
	p.hold()
}

// headers appends a header block, in as many frames as it needs.
func (p *peer) headers(stream uint32, fields []httpproxy.Header, end bool) {
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	p.begin(0, http2.FrameHeaders, flags, stream)
	start := len(p.out)
	for i := range fields {
		p.encoder.WriteField(hpack.HeaderField(fields[i])) // output returns no error
	}
	p.hold()
	length := len(p.out) - start
	if length <= maxPayload {
		head := p.out[start-frameHeader:]
		head[0], head[1], head[2] = byte(length>>16), byte(length>>8), byte(length)
		return
	}
	rest := append([]byte(nil), p.out[start:]...)
	p.out = p.out[:start-frameHeader]
	kind := http2.FrameHeaders
	flags &^= http2.FlagHeadersEndHeaders
	for len(rest) > 0 {
		n := min(len(rest), maxPayload)
		if n == len(rest) {
			flags |= http2.FlagContinuationEndHeaders
		}
		p.begin(n, kind, flags, stream)
		p.out = append(p.out, rest[:n]...)
		rest, kind, flags = rest[n:], http2.FrameContinuation, 0
	}
}

func (p *peer) number(kind http2.FrameType, stream, v uint32) {
	p.begin(4, kind, 0, stream)
	p.out = binary.BigEndian.AppendUint32(p.out, v)
}

func (p *peer) reset(stream uint32, code http2.ErrCode) {
	p.number(http2.FrameRSTStream, stream, uint32(code))
}

// credit lets the peer send n bytes more.
func (p *peer) credit(stream uint32, n int) {
	if n > 0 {
		p.number(http2.FrameWindowUpdate, stream, uint32(n))
	}
}

func (p *peer) ping(data []byte, ack bool) {
	var flags http2.Flags
	if ack {
		flags = http2.FlagPingAck
	}
	p.begin(len(data), http2.FramePing, flags, 0)
	p.out = append(p.out, data...)
}

func (p *peer) settings(list []http2.Setting, relayed bool) {
	p.unacked = append(p.unacked, relayed)
	p.begin(6*len(list), http2.FrameSettings, 0, 0)
	for _, s := range list {
		p.out = binary.BigEndian.AppendUint16(p.out, uint16(s.ID))
		p.out = binary.BigEndian.AppendUint32(p.out, s.Val)
	}
}

func (p *peer) ackSettings() { p.begin(0, http2.FrameSettings, http2.FlagSettingsAck, 0) }

func (p *peer) goAway(last uint32, code http2.ErrCode, text []byte) {
	p.begin(8+len(text), http2.FrameGoAway, 0, 0)
	p.out = binary.BigEndian.AppendUint32(p.out, last)
	p.out = binary.BigEndian.AppendUint32(p.out, uint32(code))
	p.out = append(p.out, text...)
}

// maxGathered is how much may wait for a peer while there is more to read, or other bytes are being written to it.
const maxGathered = 16 << 10

// isCrowded reports whether so much waits for a peer.
func (s *Session) isCrowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.client.out) >= maxGathered || s.server != nil && len(s.server.out) >= maxGathered
}

// flush sends what was gathered for a peer. While another goroutine does that, it returns at once, if not too much
// waits.
func (s *Session) flush(p *peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushLocked(p, maxGathered)
}

// flushLocked waits for another goroutine that writes to the peer if at least most bytes wait.
func (s *Session) flushLocked(p *peer, most int) error {
	for !p.writing.IsZero() && len(p.out) >= most {
		s.changed.Wait()
	}
	if !p.writing.IsZero() || len(p.out) == 0 {
		return p.err
	}
	for len(p.out) > 0 {
		out, buffer, held := p.out, p.buffer, p.held
		p.out, p.buffer, p.held = nil, nil, 0
		if p.err == nil {
			p.writing = time.Now()
			s.mu.Unlock()
			_, err := p.conn.Write(out)
			s.progress.Add(1)
			s.mu.Lock()
			p.err = err
		}
		buffer.Release()
		p.conn.Memory.Release(held)
	}
	p.writing = time.Time{}
	s.changed.Broadcast()
	return p.err
}

// maxUseless limits the useless frames that a peer may send at once, perSecond the rate at which it may go on. Useful
// frames refill the budget, since peers send a ping for the data that they receive.
const (
	maxUseless = 2000
	perSecond  = 200
)

// frameBudget limits useless frames: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, frames of streams that are
// over, and streams that are canceled before they were answered.
type frameBudget struct {
	left   int
	filled time.Time
}

func (b *frameBudget) refill(n int) { b.left = min(b.left+n, maxUseless) }

// spend returns an error when the budget is used up.
func (b *frameBudget) spend(n int) error {
	if b.left -= n; b.left >= 0 {
		return nil
	}
	now := time.Now()
	b.refill(int(min(now.Sub(b.filled), time.Hour) * perSecond / time.Second))
	if b.filled = now; b.left < 0 {
		return floodError
	}
	return nil
}
