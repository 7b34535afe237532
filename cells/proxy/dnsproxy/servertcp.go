package dnsproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// forwardTCP sends the query to the server over TCP, and waits for the answer.
func (h *Handler) forwardTCP(f *pendingQuery) result {
	limit, cancel := context.WithTimeout(f.ctx, h.config.Limits.Timeout)
	defer cancel()
	conn, err := h.config.Dial(limit, f.Query)
	if err != nil {
		return result{outcome: failure(f.ctx, limit, err)}
	}
	defer conn.Close()
	defer context.AfterFunc(limit, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	answer, err := exchangeStream(conn, f.withID(), f.question.end)
	if err != nil {
		return result{outcome: failure(f.ctx, limit, err)}
	}
	return f.answered(answer)
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
func exchangeStream(conn net.Conn, query []byte, end int) (answer []byte, _ error) {
	if err := writeStream(conn, query); err != nil {
		return nil, err
	}
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, err
		}
		answer = make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, answer); err != nil {
			return nil, err
		}
		if matches(answer, query, end) {
			return answer, nil
		}
	}
}
