package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

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
