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

// write returns false when there is nobody to write to.
func (l lines) write(line any) bool { return l.encoder.Encode(line) == nil }

// flush sends what was written, and returns false when nobody takes it.
func (l lines) flush() bool { return l.control.Flush() == nil }

// lastWords is how long a client may take the last lines of an agent that stops.
const lastWords = time.Second

// unhurried lets the client take as long as it likes: one that was suspended sees a gap when it goes on. When
// stopping ends it has lastWords left. The caller calls the function that is returned when it will write no more.
func (l lines) unhurried(stopping context.Context) (done func() bool) {
	_ = l.control.SetWriteDeadline(time.Time{})
	return context.AfterFunc(stopping, func() { _ = l.control.SetWriteDeadline(time.Now().Add(lastWords)) })
}
