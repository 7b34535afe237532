package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
)

// The exit codes, which scripts know.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
)

const aboutExit = `Exit codes:
  0  it is done
  1  it failed
  2  the command line is wrong, or the agent cannot read what it asks for
  3  what it asks for is not there
  4  the agent is not reachable, or did not answer in time`

// absentError is a thing that is not there, found out here and not by the agent.
type absentError struct{ text string }

func (e absentError) Error() string { return e.text }

// usageError is a command line that is wrong.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[absentError](err); ok {
		return exitNotFound
	}
	if problem, ok := errors.AsType[*v1.Problem](err); ok {
		switch problem.Code {
		case v1.CodeInvalid:
			return exitUsage
		case v1.CodeNotFound:
			return exitNotFound
		case v1.CodeDeadline:
			return exitUnreachable
		}
		return exitFailure
	}
	if errors.Is(err, client.ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
		return exitUnreachable
	}
	return exitFailure
}

// hintedError is an answer of the agent, and what the user can do.
type hintedError struct {
	error
	hint string
}

func (e hintedError) Error() string { return e.error.Error() + ": " + e.hint }
func (e hintedError) Unwrap() error { return e.error }

// withHint adds the hint to the answer that something is not there.
func withHint(err error, hint string) error {
	if exitCode(err) != exitNotFound {
		return err
	}
	return hintedError{err, hint}
}

// usageOf returns the error of a wrong command line. It names the command and its help.
func usageOf(words []string, text string) error {
	program := strings.Join(append([]string{"porin"}, words...), " ")
	if len(words) == 0 {
		return usageError{fmt.Sprintf("%s; see porin --help", text)}
	}
	return usageError{fmt.Sprintf("%s: %s; see %s --help", strings.Join(words, " "), text, program)}
}

// flagFault returns the error text for a flag that cannot be parsed.
func flagFault(err error) string {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	want := map[string]string{"int": "a number", "uint": "a number", "uint16": "a number from 0 to 65535", "uint64": "a number", "duration": "a time, such as 30s", "bool": "true or false"}
	wanted, ok := want[invalid.GetFlag().Value.Type()]
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), wanted)
}
