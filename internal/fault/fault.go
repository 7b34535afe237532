// Package fault gives an error a kind, so that the edge of the program (an HTTP handler, the CNI plugin) can turn any
// error into the right answer without knowing where it came from.
package fault

import (
	"context"
	"errors"
)

// Kind says what sort of fault an error is. Its text is the stable "code" of the API's problem bodies.
type Kind string

// The kinds there are. Values are part of the API: append, never rename.
const (
	Invalid     Kind = "invalid"     // the caller asked for something that can never work
	NotFound    Kind = "not-found"   // the named object is not there
	Conflict    Kind = "conflict"    // it is there, and has another owner
	Exhausted   Kind = "exhausted"   // there is no more of it
	Unavailable Kind = "unavailable" // it may work in a while
	Deadline    Kind = "deadline"    // the caller's time ran out, or the caller left
	Forbidden   Kind = "forbidden"   // the caller may not
	TooLarge    Kind = "too-large"   // the request is larger than the server reads
	Internal    Kind = "internal"    // our fault, and the kind of every error that has none
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{Invalid, NotFound, Conflict, Exhausted, Unavailable, Deadline, Forbidden, TooLarge, Internal}
}

type fault struct {
	kind Kind
	text string
	err  error
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.err }

// New returns an error of the kind, for use as a sentinel.
func New(kind Kind, text string) error { return &fault{kind: kind, text: text} }

// Wrap gives err a kind, or another than it had, and keeps its text. A nil err stays nil.
func Wrap(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &fault{kind: kind, text: err.Error(), err: err}
}

// KindOf returns the outermost kind in err's chain. A context's end is [Deadline]; an error without a kind is
// [Internal].
func KindOf(err error) Kind {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.kind
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Deadline
	}
	return Internal
}

// Text is the message of the error; "" for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
