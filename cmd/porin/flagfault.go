package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// flagFault is what is wrong with a flag, in the words of this program and not in those of a parser of numbers.
func flagFault(err error) string {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	want := map[string]string{"int": "a number", "uint64": "a number", "duration": "a time, such as 30s", "bool": "true or false"}
	wanted, ok := want[invalid.GetFlag().Value.Type()]
	if !ok {
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), wanted)
}
