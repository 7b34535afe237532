package monitor

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// lines writes events as newline-delimited JSON.
type lines struct {
	encoder *json.Encoder
	control *http.ResponseController
}

func newLines(w http.ResponseWriter) lines {
	return lines{json.NewEncoder(w), http.NewResponseController(w)}
}

// write returns false when there was nothing to write, or nobody to write to.
func (l lines) write(events []v1.Event) bool {
	for i := range events {
		if l.encoder.Encode(&events[i]) != nil {
			return false
		}
	}
	return len(events) > 0
}

// flush sends what was written, and returns false when nobody takes it.
func (l lines) flush() bool { return l.control.Flush() == nil }

// lastWords is how long a client may take the last events of an agent that stops.
const lastWords = time.Second

// unhurried lets the client take as long as it likes: one that was suspended sees a gap when it goes on. When
// stopping ends it has lastWords left. The caller calls the function that is returned when it will write no more.
func (l lines) unhurried(stopping context.Context) (done func() bool) {
	_ = l.control.SetWriteDeadline(time.Time{})
	return context.AfterFunc(stopping, func() { _ = l.control.SetWriteDeadline(time.Now().Add(lastWords)) })
}
