package http2proxy

import (
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/httpproxy"
)

// costOfReset is the cost of a stream that is canceled before it was answered: the server may have done work for it. An
// answer makes up for it.
const costOfReset = 4

// relay handles the frames that go from one peer to the other. to is nil while the server was not dialled.
func (s *Session) relay(from, to *peer, f frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.kind {
	case http2.FrameData:
		return s.relayData(from, to, f)
	case http2.FrameRSTStream:
		return s.relayReset(from, to, f)
	case http2.FrameWindowUpdate:
		return s.relayCredit(from, to, f)
	case http2.FrameSettings:
		return s.relaySettings(from, to, f)
	case http2.FramePing:
		return s.relayPing(from, to, f)
	case http2.FrameGoAway:
		return s.relayGoAway(from, to, f)
	}
	return from.budget.spend(1) // PRIORITY, and extensions that we do not speak
}

// isIdle reports whether the client has not begun the stream.
func (s *Session) isIdle(id uint32) bool { return id > s.lastID || id%2 == 0 }

func (s *Session) relayData(from, to *peer, f frame) error {
	flow := len(f.payload)
	padding, err := f.unpad()
	if err != nil {
		return err
	}
	if s.isIdle(f.stream) {
		return protocolError
	}
	end := f.flags.Has(http2.FlagDataEndStream)
	useful := len(f.payload) > 0 || end
	if !useful {
		if err := from.budget.spend(1); err != nil {
			return err
		}
	}
	st := s.streams[f.stream]
	if st == nil { // it was reset meanwhile, or not forwarded
		from.credit(0, flow)
		return s.lateData(from, f.stream, len(f.payload), end)
	}
	st.tick = s.tick
	if fault, code := st.dataFault(from == s.client, len(f.payload), end); fault != "" {
		from.credit(0, flow)
		if from == s.client {
			s.cancel(st, fault, code)
		} else {
			s.endStream(st, fault, code)
		}
		return nil
	}
	from.credit(0, padding)
	if !end {
		from.credit(f.stream, padding)
	}
	if useful {
		to.data(f.stream, f.payload, end)
		from.budget.refill(1)
		to.budget.refill(updates + len(f.payload)/bytesPerUpdate)
	}
	if end {
		s.endSide(st, from == s.client)
	}
	return nil
}

// A receiver sends a WINDOW_UPDATE for the stream and one for the connection, as often as it reads: its budget has room
// for one of each for every 512 bytes.
const (
	updates        = 2
	bytesPerUpdate = 256
)

// lateBytes is the size from which DATA of a stream that was reset costs nothing, as other DATA: a client may have sent
// much of it before it knew.
const lateBytes = 1 << 10

// lateData handles DATA of a stream that is over. A client that has ended the stream itself gets STREAM_CLOSED.
func (s *Session) lateData(from *peer, id uint32, n int, end bool) error {
	switch {
	case from == s.client && !s.receiveLate(id, end):
		from.reset(id, http2.ErrCodeStreamClosed)
	case end || n >= lateBytes:
		return nil
	}
	return from.budget.spend(1)
}

// dataFault checks the order of frames and the length that was announced.
func (st *stream) dataFault(fromClient bool, n int, end bool) (httpproxy.Reason, http2.ErrCode) {
	done, left, fault, mismatch := st.clientDone, &st.requestLeft, httpproxy.ReasonProtocol, httpproxy.ReasonLengthMismatch
	if !fromClient {
		done, left, fault, mismatch = st.serverDone || !st.answered, &st.responseLeft, httpproxy.ReasonResponse, httpproxy.ReasonResponse
	}
	if done {
		return fault, http2.ErrCodeStreamClosed
	}
	if *left >= 0 {
		if *left -= int64(n); *left < 0 || end && *left > 0 {
			return mismatch, http2.ErrCodeProtocol
		}
	}
	return "", 0
}

func (s *Session) relayReset(from, to *peer, f frame) error {
	if len(f.payload) != 4 {
		return frameSizeError
	}
	if s.isIdle(f.stream) {
		return protocolError
	}
	st := s.streams[f.stream]
	if st == nil {
		s.receiveLate(f.stream, from == s.client)
		return from.budget.spend(1)
	}
	st.clientDone = st.clientDone || from == s.client
	s.removeStream(st)
	to.reset(f.stream, http2.ErrCode(binary.BigEndian.Uint32(f.payload)))
	if from == s.server {
		s.recordUnanswered(st, httpproxy.ReasonCanceledByServer)
		return nil
	}
	s.recordUnanswered(st, httpproxy.ReasonCanceledByClient)
	if st.answered {
		return nil
	}
	return from.budget.spend(costOfReset)
}

// relayCredit passes a part of a window on, whose sender takes so much more.
func (s *Session) relayCredit(from, to *peer, f frame) error {
	if len(f.payload) != 4 {
		return frameSizeError
	}
	n := binary.BigEndian.Uint32(f.payload) & maxStream
	if n == 0 {
		return protocolError
	}
	if err := from.budget.spend(1); err != nil {
		return err
	}
	if f.stream == 0 {
		if to != nil {
			to.credit(0, int(n))
			return nil
		}
		const initial = 65535 // RFC 9113, 6.9.2
		if s.credit += int64(n); s.credit+initial > maxStream {
			return windowError
		}
		return nil
	}
	if s.isIdle(f.stream) {
		return protocolError
	}
	if st := s.streams[f.stream]; st != nil {
		st.tick = s.tick
		to.credit(f.stream, int(n))
	}
	return nil
}

// maxUnacked is how many SETTINGS a peer may leave without acknowledgement.
const maxUnacked = 64

func (s *Session) relaySettings(from, to *peer, f frame) error {
	if f.stream != 0 {
		return protocolError
	}
	if f.flags.Has(http2.FlagSettingsAck) {
		if len(f.payload) != 0 {
			return frameSizeError
		}
		if len(from.unacked) == 0 {
			return protocolError
		}
		relayed := from.unacked[0]
		if from.unacked = from.unacked[1:]; relayed {
			to.ackSettings()
		}
		return nil
	}
	if err := from.budget.spend(1); err != nil {
		return err
	}
	list, err := s.readSettings(from, f)
	if err != nil {
		return err
	}
	from.settled = true
	switch {
	case to == nil:
		for _, v := range list {
			s.settingsForServer = append(slices.DeleteFunc(s.settingsForServer, func(e http2.Setting) bool { return e.ID == v.ID }), v)
		}
		from.ackSettings()
	case len(to.unacked) >= maxUnacked:
		return floodError
	default:
		to.settings(list, true)
	}
	return nil
}

// readSettings uses what concerns the connection itself, and returns what the other peer has to know.
func (s *Session) readSettings(from *peer, f frame) (list []http2.Setting, err error) {
	if len(f.payload)%6 != 0 {
		return nil, frameSizeError
	}
	for b := f.payload; len(b) > 0; b = b[6:] {
		v := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(b)), Val: binary.BigEndian.Uint32(b[2:])}
		switch v.ID {
		case http2.SettingHeaderTableSize:
			from.encoder.SetMaxDynamicTableSize(min(v.Val, tableSize))
			continue
		case http2.SettingInitialWindowSize:
			if v.Val > maxStream {
				return nil, windowError
			}
		case http2.SettingMaxConcurrentStreams:
			if from == s.client { // of streams that the server pushes
				continue
			}
			v.Val = min(v.Val, uint32(s.Limits.Streams))
		case http2.SettingMaxHeaderListSize:
			v.Val = min(v.Val, uint32(s.Limits.HeadBytes))
		default:
			if v.Valid() != nil {
				return nil, protocolError
			}
			continue
		}
		list = append(slices.DeleteFunc(list, func(e http2.Setting) bool { return e.ID == v.ID }), v)
	}
	return list, nil
}

func (s *Session) relayPing(from, to *peer, f frame) error {
	if len(f.payload) != 8 {
		return frameSizeError
	}
	if f.stream != 0 {
		return protocolError
	}
	ack := f.flags.Has(http2.FlagPingAck)
	if err := from.budget.spend(1); err != nil {
		return err
	}
	switch {
	case to != nil:
		to.ping(f.payload, ack)
	case !ack:
		from.ping(f.payload, true)
	}
	return nil
}

// maxDebug is how much of the text of a GOAWAY is passed on.
const maxDebug = 256

func (s *Session) relayGoAway(from, to *peer, f frame) error {
	if len(f.payload) < 8 {
		return frameSizeError
	}
	if f.stream != 0 {
		return protocolError
	}
	if err := from.budget.spend(1); err != nil {
		return err
	}
	last, code := binary.BigEndian.Uint32(f.payload)&maxStream, http2.ErrCode(binary.BigEndian.Uint32(f.payload[4:]))
	if to == nil {
		return nil
	}
	text := f.payload[8:]
	text = text[:min(len(text), maxDebug)]
	if from == s.client {
		to.goAway(0, code, text)
		return nil
	}
	to.goAway(min(last, s.accepted), code, text)
	if last == maxStream { // the first of two
		return nil
	}
	s.final, s.accepted = true, min(s.accepted, last)
	for id, st := range s.streams {
		if id > last {
			s.removeStream(st)
			s.recordUnanswered(st, httpproxy.ReasonCanceledByServer)
		}
	}
	return nil
}
