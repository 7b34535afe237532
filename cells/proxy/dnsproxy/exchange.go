package dnsproxy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// exchanged is what an exchange with a server has brought. The answer has the ID of the pod.
type exchanged struct {
	answer  []byte
	ignored int
	outcome Outcome
}

// exchange sends the query to the server and waits for the answer.
func (h *Handler) exchange(ctx context.Context, f *flight) (e exchanged) {
	limit, cancel := context.WithTimeout(ctx, h.config.Limits.Timeout)
	defer cancel()
	conn, err := h.config.Dial(limit, f.Query)
	if err != nil {
		return exchanged{outcome: failure(ctx, limit, err)}
	}
	defer conn.Close()
	defer context.AfterFunc(limit, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	query := append([]byte(nil), f.Message...)
	_, _ = rand.Read(query[:2]) // it never fails
	if f.TCP {
		e, err = askTCP(conn, query, f.question.end)
	} else {
		e, err = h.askUDP(limit, conn, query, f.question)
	}
	if err != nil {
		return exchanged{ignored: e.ignored, outcome: failure(ctx, limit, err)}
	}
	copy(e.answer, f.Message[:2])
	e.outcome = Answered
	return e
}

// failure tells why an exchange has failed.
func failure(ctx, limit context.Context, err error) Outcome {
	switch {
	case ctx.Err() != nil:
		return Canceled
	case limit.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	default:
		return Unreachable
	}
}

// datagrams are buffers for answers over UDP. The last byte tells that an answer was larger.
var datagrams = sync.Pool{New: func() any { return new([maxUDP + 1]byte) }}

// askUDP sends a datagram, sends it again when no answer has come after a while, and returns the first answer that matches.
func (h *Handler) askUDP(ctx context.Context, conn net.Conn, query []byte, q question) (e exchanged, _ error) {
	buffer := datagrams.Get().(*[maxUDP + 1]byte)
	defer datagrams.Put(buffer)
	if _, err := conn.Write(query); err != nil {
		return e, err
	}
	repeat := time.Now().Add(h.config.Limits.Repeat)
	_ = conn.SetReadDeadline(repeat)
	for {
		if err := ctx.Err(); err != nil {
			return e, err // the deadline that its end has set may have been overwritten
		}
		n, err := conn.Read(buffer[:])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && !repeat.IsZero():
			repeat = time.Time{}
			_ = conn.SetReadDeadline(repeat)
			if _, err := conn.Write(query); err != nil {
				return e, err
			}
		case err != nil:
			return e, err
		case !matches(buffer[:n], query, q.end):
			e.ignored++
		case n > q.udp:
			e.answer = truncated(buffer[:n], q.end)
			return e, nil
		default:
			e.answer = append([]byte(nil), buffer[:n]...)
			return e, nil
		}
	}
}

// askTCP returns the first answer that matches.
func askTCP(conn net.Conn, query []byte, end int) (e exchanged, _ error) {
	if err := writeStream(conn, query); err != nil {
		return e, err
	}
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return e, err
		}
		answer := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, answer); err != nil {
			return e, err
		}
		if matches(answer, query, end) {
			e.answer = answer
			return e, nil
		}
		e.ignored++
	}
}

// writeStream writes a message with its length, in one segment if it fits.
func writeStream(w io.Writer, m []byte) error {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(m)), uint16(len(m)))
	_, err := w.Write(append(framed, m...))
	return err
}
