package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"porin.dev/porin/internal/fault"
)

// Query is what a client asks for.
type Query struct {
	Since  uint64 // the number of the last record that it has
	Follow bool   // go on with new records
}

// ParseQuery reads the parameters since and follow. what names a record in errors, such as "an event".
func ParseQuery(query url.Values, what string) (q Query, err error) {
	if text := query.Get("since"); text != "" {
		if q.Since, err = strconv.ParseUint(text, 10, 64); err != nil {
			return q, fault.New(fault.Invalid, fmt.Sprintf("since=%.32q: want the seq of %s", text, what))
		}
	}
	if text := query.Get("follow"); text != "" {
		if q.Follow, err = strconv.ParseBool(text); err != nil {
			return q, fault.New(fault.Invalid, fmt.Sprintf("follow=%.32q: want true or false", text))
		}
	}
	return q, nil
}

// Format is how records become lines.
type Format[T any] struct {
	// Line returns what is written for a record, or nil when the client has not asked for it.
	Line func(seq uint64, record *T) any
	// Missed returns the line for n records, up to number seq, that the ring has lost before the client read them. A
	// nil Missed writes nothing.
	Missed func(seq, n uint64) any
}

// Serve answers with one record a line: the ring's records and, with follow, new records, until the client leaves or
// the ring is closed. It waits for a slow client until stopping ends. It returns no error: it only ends early when the
// client has left.
func (r *Ring[T]) Serve(w http.ResponseWriter, request *http.Request, q Query, f Format[T], stopping context.Context) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out, reader := newLines(w), r.NewReader(q.Since)
	if !q.Follow {
		last := r.Newest()
		for f.write(out, reader, reader.UpTo(last)) {
		}
		return
	}
	defer out.withoutDeadline(stopping)()
	for out.flush() && f.write(out, reader, reader.Next(request.Context())) {
	}
}

// write returns false when there was nothing to write, or the client has left.
func (f Format[T]) write(out lines, reader *Reader[T], batch []T) bool {
	if len(batch) > 0 && reader.Missed > 0 && f.Missed != nil && !out.write(f.Missed(reader.First-1, reader.Missed)) {
		return false
	}
	for i := range batch {
		if line := f.Line(reader.First+uint64(i), &batch[i]); line != nil && !out.write(line) {
			return false
		}
	}
	return len(batch) > 0
}

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
