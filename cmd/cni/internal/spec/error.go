package spec

import (
	"errors"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Code is the number of an error in the CNI specification (1.1.0, section 5).
type Code int

// The codes in use. Those from 100 on are the plugin's own.
const (
	Incompatible     Code = 1   // the configuration's version is not one of [Versions]
	UnknownContainer Code = 3   // the runtime need not clean up
	BadEnvironment   Code = 4   // CNI_... variables
	IOFailure        Code = 5   // reading the configuration
	NotJSON          Code = 6   // decoding the configuration
	BadConfig        Code = 7   // the configuration does not make sense, or asks for what cannot be
	BadNetNS         Code = 8   // CNI_NETNS
	TryAgain         Code = 11  // it may work in a while
	NotAvailable     Code = 50  // STATUS: no container can be attached
	Limited          Code = 51  // STATUS: and the attached ones are cut off, too
	Differs          Code = 100 // CHECK: the attachment is not what its ADD said
	Conflict         Code = 101 // it is there, and belongs to somebody else
	Internal         Code = 999
)

// Error is a failure as a runtime gets it.
type Error struct {
	Code Code
	Msg  string // what failed, and why; one line
	Hint string // what to do about it; may be empty
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Msg
	}
	return e.Msg + "; " + e.Hint
}

// AsError makes any error one of a code: [Internal] if it has none.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: Internal, Msg: err.Error(), Hint: "this looks like a fault of Porin: please report it"}
}

// JSON is the error in the form of the specification.
func (e *Error) JSON(cniVersion string) []byte {
	var w jsontext.Writer
	w.Open('{')
	w.OptField("cniVersion", cniVersion)
	w.Key("code")
	w.Int(int64(e.Code))
	w.Field("msg", oneLine(e.Msg))
	w.OptField("details", oneLine(e.Hint))
	w.Close('}')
	return append(w.Bytes(), '\n')
}

func oneLine(text string) string {
	line := []byte(text)
	for i, c := range line {
		if c == '\n' || c == '\r' {
			line[i] = ' '
		}
	}
	return string(line)
}
