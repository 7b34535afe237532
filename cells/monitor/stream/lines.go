package stream

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// lines writes newline-delimited JSON.
type lines struct {
	encoder *json.Encoder
	control *http.ResponseController
}

func newLines(w http.ResponseWriter) lines {
	return lines{json.NewEncoder(w), http.NewResponseController(w)}
}

// write returns false when the client has left.
func (l lines) write(line any) bool { return l.encoder.Encode(line) == nil }

// flush sends what was written, and returns false when the client has left.
func (l lines) flush() bool { return l.control.Flush() == nil }

// stopTimeout is how long a client may take to read the last lines when the agent stops.
const stopTimeout = time.Second

// withoutDeadline lets the client read as slowly as it likes: a suspended client sees a gap when it goes on. When
// stopping ends, the client has stopTimeout left. The caller calls done when it will write no more.
func (l lines) withoutDeadline(stopping context.Context) (done func() bool) {
	_ = l.control.SetWriteDeadline(time.Time{})
	return context.AfterFunc(stopping, func() { _ = l.control.SetWriteDeadline(time.Now().Add(stopTimeout)) })
}
