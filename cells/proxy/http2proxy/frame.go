package http2proxy

import (
	"encoding/binary"
	"errors"
	"os"
	"time"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

const (
	frameHeader = 9
	maxPayload  = 16 << 10 // the size that all peers accept; we announce no other
	maxStream   = 1<<31 - 1
)

// frame is a frame that was read. Its payload is valid until the next one is read.
type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

func parseFrameHeader(b []byte) (f frame, length int) {
	length = int(b[0])<<16 | int(b[1])<<8 | int(b[2])
	return frame{kind: http2.FrameType(b[3]), flags: http2.Flags(b[4]), stream: binary.BigEndian.Uint32(b[5:]) & maxStream}, length
}

func appendFrameHeader(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

// unpad removes padding, and returns how many bytes it was, with its length.
func (f *frame) unpad() (padding int, err error) {
	if !f.flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return 0, nil
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return 0, protocolError
	}
	padding = 1 + int(f.payload[0])
	f.payload = f.payload[1 : len(f.payload)-padding+1]
	return padding, nil
}

// connError ends the connection of the peer that has caused it.
type connError struct {
	code   http2.ErrCode
	reason httpproxy.Reason
}

func (e *connError) Error() string { return "HTTP/2: " + e.code.String() + ": " + string(e.reason) }

var (
	protocolError    = &connError{http2.ErrCodeProtocol, httpproxy.ReasonProtocol}
	frameSizeError   = &connError{http2.ErrCodeFrameSize, httpproxy.ReasonProtocol}
	windowError      = &connError{http2.ErrCodeFlowControl, httpproxy.ReasonProtocol}
	compressionError = &connError{http2.ErrCodeCompression, httpproxy.ReasonProtocol}
	headError        = &connError{http2.ErrCodeEnhanceYourCalm, httpproxy.ReasonHeadTooLarge}
	timeoutError     = &connError{http2.ErrCodeEnhanceYourCalm, httpproxy.ReasonHeadTimeout}
	memoryError      = &connError{http2.ErrCodeEnhanceYourCalm, httpproxy.ReasonMemory}
	floodError       = &connError{http2.ErrCodeEnhanceYourCalm, httpproxy.ReasonFlood}
	notHTTP2Error    = &connError{http2.ErrCodeProtocol, httpproxy.ReasonServerNotHTTP2}
)

var errEnded = errors.New("the session has ended")

// readFrame waits for the next frame of the peer. Gathered frames are sent before it waits.
func (s *Session) readFrame(p *peer) (frame, error) {
	p.conn.Discard(p.used)
	p.used = 0
	if s.isCrowded() {
		if err := s.settle(); err != nil {
			return frame{}, err
		}
	}
	for {
		b := p.conn.Data()
		if p == s.server && !p.settled && !beginsWithSettings(b) {
			return frame{}, notHTTP2Error
		}
		if len(b) >= frameHeader {
			f, length := parseFrameHeader(b)
			if length > maxPayload {
				return frame{}, frameSizeError
			}
			if p.used = frameHeader + length; len(b) >= p.used {
				f.payload = b[frameHeader:p.used]
				return f, s.checkOrder(p, f)
			}
			p.used = 0
		}
		if err := s.await(p, frameHeader+maxPayload); err != nil {
			return frame{}, err
		}
	}
}

// await reads more of an incomplete frame, or of the next one.
func (s *Session) await(p *peer, limit int) error {
	if err := s.settle(); err != nil {
		return err
	}
	if len(p.conn.Data()) > 0 {
		s.limitRead(p, s.Limits.Frame)
	} else if p.settled && p.block == nil {
		s.clearReadLimit(p)
	}
	err := p.conn.Fill(limit)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bufconn.ErrMemory):
		return memoryError
	case !errors.Is(err, os.ErrDeadlineExceeded) || s.isEnding():
		return err
	case p == s.server && !p.settled:
		return notHTTP2Error
	}
	return timeoutError
}

// limitRead sets a limit for a read, unless there is one.
func (s *Session) limitRead(p *peer, limit time.Duration) {
	if !p.limited {
		p.limited = true
		s.setReadDeadline(p, time.Now().Add(limit))
	}
}

func (s *Session) clearReadLimit(p *peer) {
	if p.limited {
		p.limited = false
		s.setReadDeadline(p, time.Time{})
	}
}

// checkOrder wants SETTINGS first, and nothing within a header block.
func (s *Session) checkOrder(p *peer, f frame) error {
	switch {
	case !p.settled && (f.kind != http2.FrameSettings || f.flags.Has(http2.FlagSettingsAck)):
		return protocolError
	case (p.block != nil) != (f.kind == http2.FrameContinuation):
		return protocolError
	case p.block != nil && f.stream != p.block.stream:
		return protocolError
	}
	if p.block == nil {
		s.clearReadLimit(p)
	}
	return nil
}

// beginsWithSettings reports whether b may be the beginning of a server's first frame.
func beginsWithSettings(b []byte) bool {
	if len(b) > 0 && b[0] != 0 {
		return false
	}
	return len(b) <= 3 || b[3] == byte(http2.FrameSettings)
}

// readPreface reads what a client begins with.
func (s *Session) readPreface() error {
	p := s.client
	s.limitRead(p, s.Limits.Handshake)
	for len(p.conn.Data()) < len(http2.ClientPreface) {
		if err := s.await(p, frameHeader+maxPayload); err != nil {
			return err
		}
	}
	if string(p.conn.Data()[:len(http2.ClientPreface)]) != http2.ClientPreface {
		return protocolError
	}
	p.conn.Discard(len(http2.ClientPreface))
	return nil
}
