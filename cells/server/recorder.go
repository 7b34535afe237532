package server

import (
	"net/http"
	"time"
)

// recorder remembers what was answered, for the middleware around the handlers.
type recorder struct {
	http.ResponseWriter
	timeout time.Duration // to take the answer
	status  int           // 0 until the answer has begun
	fault   error         // behind a problem body
}

// record makes every ResponseWriter further in a *recorder.
func record(timeout time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&recorder{ResponseWriter: w, timeout: timeout}, r)
		})
	}
}

// WriteHeader also gives the caller its time to take the answer. A handler that streams sets a deadline of its own
// after its first write.
func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 {
		rec.status = status
		if w, ok := rec.ResponseWriter.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = w.SetWriteDeadline(time.Now().Add(rec.timeout))
		}
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) Write(body []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	return rec.ResponseWriter.Write(body)
}

// RecordFault is httpx.FaultRecorder.
func (rec *recorder) RecordFault(err error) { rec.fault = err }

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// answered is the status as the caller sees it: net/http sends 200 when a handler wrote nothing.
func (rec *recorder) answered() int {
	if rec.status == 0 {
		return http.StatusOK
	}
	return rec.status
}
