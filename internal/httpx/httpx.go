// Package httpx is the small layer between chi and the cells' handlers: a handler returns an error, and one place
// turns it into a problem body (RFC 9457) with a stable code.
package httpx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"porin.dev/porin/internal/fault"
)

// MaxBody is the largest request body that [Decode] reads, in bytes.
const MaxBody = 1 << 20

// Handler is an http.Handler that may fail.
type Handler func(w http.ResponseWriter, r *http.Request) error

// ServeHTTP runs the handler and writes its error, if any, as a problem. The handler must not have begun its answer
// when it returns an error.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h(w, r); err != nil {
		WriteProblem(w, err)
	}
}

// FaultRecorder is a ResponseWriter that wants the error behind a problem, for the log.
type FaultRecorder interface{ RecordFault(err error) }

// JSON writes body with the given status.
func JSON(w http.ResponseWriter, status int, body any) error {
	buf, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	_ = send(w, status, buf) // the caller may be gone
	return nil
}

// Send is [JSON] for whoever must know whether the caller was there to take the answer: its error says that it was not,
// or that body is none. That it was there does not mean that it has read it.
func Send(w http.ResponseWriter, status int, body any) error {
	buf, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return send(w, status, buf)
}

func send(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return err
	}
	err := http.NewResponseController(w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// Decode reads one JSON value of type T from the request's body. Unknown fields, more than one value, and a body over
// [MaxBody] are refused.
func Decode[T any](w http.ResponseWriter, r *http.Request) (T, error) {
	var body T
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		return body, bodyFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return body, fault.New(fault.Invalid, "read body: more than one JSON value")
	}
	return body, nil
}

func bodyFault(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault.New(fault.TooLarge, fmt.Sprintf("read body: larger than %d bytes", tooLarge.Limit))
	}
	if errors.Is(err, io.EOF) {
		return fault.New(fault.Invalid, "read body: it is empty")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.Deadline, "read body: it did not arrive in time")
	}
	return fault.Wrap(fault.Invalid, fmt.Errorf("read body: %w", err))
}
