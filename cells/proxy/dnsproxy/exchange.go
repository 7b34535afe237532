package dnsproxy

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// serverResult is what an exchange with a server has brought. The answer has the ID of the pod.
type serverResult struct {
	answer  []byte
	ignored int
	outcome Outcome
}

// withID returns the query with an ID of its own, which others cannot know.
func (f *pendingQuery) withID() []byte {
	query := append([]byte(nil), f.Message...)
	_, _ = rand.Read(query[:2]) // it never fails
	return query
}

// answered is an exchange that has brought an answer. The pod gets it with its own ID.
func (f *pendingQuery) answered(answer []byte, ignored int) serverResult {
	copy(answer, f.Message[:2])
	return serverResult{answer, ignored, Answered}
}

// forwardTCP sends the query to the server over TCP, and waits for the answer.
func (h *Handler) forwardTCP(f *pendingQuery) serverResult {
	limit, cancel := context.WithTimeout(f.ctx, h.config.Limits.Timeout)
	defer cancel()
	conn, err := h.config.Dial(limit, f.Query)
	if err != nil {
		return serverResult{outcome: failure(f.ctx, limit, err)}
	}
	defer conn.Close()
	defer context.AfterFunc(limit, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	answer, ignored, err := exchangeStream(conn, f.withID(), f.question.end)
	if err != nil {
		return serverResult{ignored: ignored, outcome: failure(f.ctx, limit, err)}
	}
	return f.answered(answer, ignored)
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

// exchangeStream returns the first answer that matches.
func exchangeStream(conn net.Conn, query []byte, end int) (answer []byte, ignored int, _ error) {
	if err := writeStream(conn, query); err != nil {
		return nil, 0, err
	}
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, ignored, err
		}
		answer = make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, ignored, err
		}
		if matches(answer, query, end) {
			return answer, ignored, nil
		}
		ignored++
	}
}

// writeStream writes a message with its length, in one segment if it fits.
func writeStream(w io.Writer, m []byte) error {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(m)), uint16(len(m)))
	_, err := w.Write(append(framed, m...))
	return err
}
