// Package httpx is the small layer between chi and the cells' handlers: a handler returns an error, and one place
// turns it into a problem body (RFC 9457) with a stable code.
package httpx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	v1 "porin.dev/porin/api/v1"
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

// JSON writes body with the given status.
func JSON(w http.ResponseWriter, status int, body any) error {
	buf, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(buf) // the caller may be gone; there is nobody left to tell
	return nil
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
	return fault.Wrap(fault.Invalid, fmt.Errorf("read body: %w", err))
}

// WriteProblem writes err as application/problem+json.
func WriteProblem(w http.ResponseWriter, err error) {
	kind := fault.KindOf(err)
	status := Status(kind)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v1.Problem{
		Title: http.StatusText(status), Status: status, Code: string(kind), Detail: err.Error(),
	})
}

// Status is the HTTP status of a kind of fault.
func Status(kind fault.Kind) int {
	switch kind {
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.Conflict:
		return http.StatusConflict
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Exhausted, fault.Unavailable:
		return http.StatusServiceUnavailable
	case fault.Deadline:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}
