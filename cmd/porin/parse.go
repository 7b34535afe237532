package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// call is a command line that was understood.
type call struct {
	words   []string // of the command, or of the group of commands that help is asked of
	command command
	args    []string
	options options
}

// parse reads a command line. Flags may stand anywhere; those of one command only after it.
func parse(args []string, getenv func(string) string) (*call, error) {
	c := &call{options: defaultOptions(getenv)}
	fs := c.options.flags()
	rest := args
	for {
		fs.SetInterspersed(false)
		if err := fs.Parse(rest); err != nil {
			return nil, c.usage(flagFault(err))
		}
		if fs.NArg() == 0 {
			return c, c.unfinished()
		}
		if rest = fs.Args(); !slices.Contains(subcommands(c.words), rest[0]) {
			return nil, c.unknown(rest[0])
		}
		c.words, rest = append(c.words, rest[0]), rest[1:]
		if command, ok := findCommand(strings.Join(c.words, " ")); ok {
			c.command = command
			return c, c.parseArguments(fs, rest)
		}
	}
}

func (c *call) parseArguments(fs *pflag.FlagSet, rest []string) error {
	if c.command.flags != nil {
		c.command.flags(fs, &c.options)
	}
	fs.SetInterspersed(true)
	if err := fs.Parse(rest); err != nil {
		return c.usage(flagFault(err))
	}
	c.args = fs.Args()
	if c.options.help {
		return nil
	}
	return c.checkArguments()
}

func (c *call) checkArguments() error {
	least, most := c.command.argumentCount()
	switch {
	case len(c.args) < least:
		return c.usage(fmt.Sprintf("want %s", c.command.args))
	case most >= 0 && len(c.args) > most && most == 0:
		return c.usage(fmt.Sprintf("takes no argument, and got %q", c.args[0]))
	case most >= 0 && len(c.args) > most:
		return c.usage(fmt.Sprintf("takes %s only, and got %q too", c.command.args, c.args[most]))
	case c.options.timeout <= 0:
		return c.usage("--timeout: want a time above zero, such as 10s")
	}
	return nil
}

// unfinished is the error of a command line that ends before its command does, unless it asks for help.
func (c *call) unfinished() error {
	if c.options.help {
		return nil
	}
	return c.usage("want one of " + strings.Join(subcommands(c.words), ", "))
}

func (c *call) unknown(word string) error {
	return c.usage(fmt.Sprintf("unknown command %q: want one of %s", word, strings.Join(subcommands(c.words), ", ")))
}

func (c *call) usage(text string) error { return usageOf(c.words, text) }

// usageOf says what is wrong, of which command, and where help is.
func usageOf(words []string, text string) error {
	program := strings.Join(append([]string{"porin"}, words...), " ")
	if len(words) == 0 {
		return usageError{fmt.Sprintf("%s; see porin --help", text)}
	}
	return usageError{fmt.Sprintf("%s: %s; see %s --help", strings.Join(words, " "), text, program)}
}

// flagFault is what is wrong with a flag, in the words of this program and not in those of a parser of numbers.
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
