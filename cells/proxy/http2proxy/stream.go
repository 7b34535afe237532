package http2proxy

import (
	"slices"
	"strings"

	"golang.org/x/net/http2"

	"porin.dev/porin/cells/proxy/bufconn"
	"porin.dev/porin/cells/proxy/httpproxy"
)

// stream is a request that was forwarded, until both sides have ended it or one has reset it.
type stream struct {
	id                     uint32
	method, host, path     string
	grpc                   bool
	clientDone, serverDone bool
	answered               bool // the final head was forwarded
	interims               int
	requestLeft            int64 // of Content-Length; -1 without one
	responseLeft           int64
	tick                   uint32 // of its last frame
	held                   int    // bytes of memory
}

// streamSize is what a stream takes without what is kept of its request.
const streamSize = 512

// spare is the memory that streams leave to buffers, without which the connections end.
const spare = 4 * bufconn.BufferSize

// How much of a request is kept for its record while it waits for its answer.
const (
	maxPath   = 2 << 10
	maxMethod = 64
)

// newStream adds a stream. It returns nil if there is no memory for it. It needs the lock.
func (s *Session) newStream(b *block, r *httpproxy.Request) *stream {
	st := &stream{
		id: b.stream, method: r.Method, host: r.Host, path: r.Path, grpc: b.grpc, clientDone: b.end, requestLeft: b.length, responseLeft: -1, tick: s.tick,
	}
	if len(st.path) > maxPath {
		st.path = strings.Clone(st.path[:maxPath])
	}
	if len(st.method) > maxMethod {
		st.method = strings.Clone(st.method[:maxMethod])
	}
	st.held = streamSize + len(st.method) + len(st.host) + len(st.path)
	memory := s.client.conn.Memory
	if !memory.Acquire(st.held + spare) {
		return nil
	}
	memory.Release(spare)
	s.streams[st.id] = st
	return st
}

// maxUnended is more than the number of streams that a client can begin before it reads that the first of them is over.
const maxUnended = 1024

// recordUnended is for a stream that is over. Unless the client has ended it, frames that the client sent before it
// knew may still come. It needs the lock.
func (s *Session) recordUnended(id uint32, clientDone bool) {
	if clientDone {
		return
	}
	if len(s.unended) == maxUnended {
		s.unended = slices.Delete(s.unended, 0, 1)
	}
	s.unended = append(s.unended, id)
}

// receiveLate is for a frame of the client on a stream that is over. It reports whether the client may have sent it
// before it knew. end says that it is the last frame of the stream. It needs the lock.
func (s *Session) receiveLate(id uint32, end bool) bool {
	i := slices.Index(s.unended, id)
	if i >= 0 && end {
		s.unended = slices.Delete(s.unended, i, i+1)
	}
	return i >= 0
}

// removeStream is for a stream that has ended. It needs the lock.
func (s *Session) removeStream(st *stream) {
	delete(s.streams, st.id)
	s.recordUnended(st.id, st.clientDone)
	s.client.conn.Memory.Release(st.held)
}

// endSide says that a side has ended the stream. It needs the lock.
func (s *Session) endSide(st *stream, fromClient bool) {
	if fromClient {
		st.clientDone = true
	} else {
		st.serverDone = true
	}
	if st.clientDone && st.serverDone {
		s.removeStream(st)
	}
}

// endStream ends a stream, and tells each peer that may still send to it, or wait for it. The client gets an answer if
// none was begun, and the server a RST. It needs the lock.
func (s *Session) endStream(st *stream, reason httpproxy.Reason, code http2.ErrCode) {
	s.removeStream(st)
	s.server.reset(st.id, code)
	if st.answered {
		s.client.reset(st.id, code)
		return
	}
	s.recordStream(st, httpproxy.Failed, reason, s.reply(st.id, st.clientDone, st.grpc, reason))
}

// cancel resets a stream on both sides. It needs the lock.
func (s *Session) cancel(st *stream, reason httpproxy.Reason, code http2.ErrCode) {
	s.removeStream(st)
	s.server.reset(st.id, code)
	s.client.reset(st.id, code)
	s.recordUnanswered(st, reason)
}

func (s *Session) recordUnanswered(st *stream, reason httpproxy.Reason) {
	if !st.answered {
		s.recordStream(st, httpproxy.Failed, reason, 0)
	}
}

// recordStream tells of a request that was forwarded. It needs the lock.
func (s *Session) recordStream(st *stream, verdict httpproxy.Verdict, reason httpproxy.Reason, status int) {
	if s.Record != nil {
		s.Record(httpproxy.Record{Method: st.method, Host: st.host, Path: st.path, Status: status, Verdict: verdict, Reason: reason})
	}
}

// record tells of a request that the server does not see.
func (s *Session) record(r *httpproxy.Request, verdict httpproxy.Verdict, reason httpproxy.Reason, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordStream(&stream{method: r.Method, host: r.Host, path: r.Path}, verdict, reason, status)
}
