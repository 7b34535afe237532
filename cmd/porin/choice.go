package main

import (
	"fmt"
	"slices"
	"strings"
)

// choice is a flag that takes one of a few values; the first is the default.
type choice struct {
	value string
	all   []string
}

func newChoice(all ...string) choice { return choice{all[0], all} }

// String is pflag.Value.
func (c *choice) String() string { return c.value }

// Type is pflag.Value.
func (c *choice) Type() string { return "string" }

// Set is pflag.Value.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.all, value) {
		return fmt.Errorf("want %s", strings.Join(c.all, " or "))
	}
	c.value = value
	return nil
}
