package v1

// Problem is the body of every failure (RFC 9457, application/problem+json).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"` // the HTTP status again
	Code   string `json:"code"`   // stable, for programs
	Detail string `json:"detail"` // for people: the operation, its object, and the cause of the failure
}

// Error is the detail and the code, so that a client can return a Problem as an error.
func (p *Problem) Error() string { return p.Detail + " (" + p.Code + ")" }

// The codes of a [Problem].
const (
	CodeInvalid     = "invalid"
	CodeNotFound    = "not-found"
	CodeConflict    = "conflict"
	CodeExhausted   = "exhausted"
	CodeUnavailable = "unavailable"
	CodeDeadline    = "deadline"
	CodeForbidden   = "forbidden"
	CodeTooLarge    = "too-large"
	CodeInternal    = "internal"
)

// TimeoutHeader is the request header in which a caller says how long it will wait for the answer, as a Go duration
// ("30s"). The agent gives up, and has undone what it did, before that.
const TimeoutHeader = "Porin-Timeout"
