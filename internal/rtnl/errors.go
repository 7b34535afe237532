package rtnl

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Error is the kernel's refusal of one request. errors.Is finds its Errno.
type Error struct {
	What  string     // the request
	Errno unix.Errno // why
	Text  string     // why, in the kernel's words (an extended acknowledgement); often empty
}

func (e *Error) Error() string {
	text := e.What + ": " + e.Errno.Error()
	if e.Text != "" {
		text += " (" + e.Text + ")"
	}
	return text
}

func (e *Error) Unwrap() error { return e.Errno }

// Errors are the refusals of several requests of one batch, in the order of the requests.
type Errors []error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e Errors) Unwrap() []error { return e }

// err is nil, the one error, or all of them.
func (e Errors) err() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	return e
}
