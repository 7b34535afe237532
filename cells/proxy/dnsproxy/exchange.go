package dnsproxy

import (
	"crypto/rand"
	"encoding/binary"
	"io"
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

// writeStream writes a message with its length, in one segment if it fits.
func writeStream(w io.Writer, m []byte) error {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(m)), uint16(len(m)))
	_, err := w.Write(append(framed, m...))
	return err
}
