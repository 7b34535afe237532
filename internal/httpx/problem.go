package httpx

import (
	"encoding/json"
	"net/http"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// WriteProblem writes err as application/problem+json.
func WriteProblem(w http.ResponseWriter, err error) {
	kind := fault.KindOf(err)
	WriteStatusProblem(w, Status(kind), kind, err)
}

// WriteStatusProblem is [WriteProblem] with another status than the kind's own: 405 has no kind of its own.
func WriteStatusProblem(w http.ResponseWriter, status int, kind fault.Kind, err error) {
	if recorder, ok := w.(FaultRecorder); ok {
		recorder.RecordFault(err)
	}
	detail := err.Error()
	if hint, _ := fault.HintOf(err); hint != "" {
		detail += "; " + hint
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v1.Problem{ // the caller may be gone
		Title: http.StatusText(status), Status: status, Code: string(kind), Detail: detail,
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
