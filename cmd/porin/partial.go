package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// partial is a command line that is still being typed, as far as it can be understood.
type partial struct {
	words     []string
	command   command // without run while it is not known
	arguments int     // how many it has
	flags     *pflag.FlagSet
	options   *options
	open      *pflag.Flag // the flag whose value comes next
}

func read(typed []string, getenv func(string) string) *partial {
	o := defaultOptions(getenv)
	p := &partial{flags: o.flags(), options: &o}
	for _, word := range typed {
		switch {
		case p.open != nil:
			_ = p.open.Value.Set(word) // a wrong value is told when the command runs
			p.open = nil
		case strings.HasPrefix(word, "-"):
			p.flag(word)
		default:
			p.word(word)
		}
	}
	return p
}

func (p *partial) flag(word string) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	f := p.flags.Lookup(name)
	if f == nil && len(name) == 1 {
		f = p.flags.ShorthandLookup(name)
	}
	switch {
	case f == nil:
	case hasValue:
		_ = f.Value.Set(value)
	case f.NoOptDefVal == "":
		p.open = f
	}
}

func (p *partial) word(word string) {
	if p.command.run != nil {
		p.arguments++
		return
	}
	if !slices.Contains(below(p.words), word) {
		return
	}
	p.words = append(p.words, word)
	if c, ok := find(strings.Join(p.words, " ")); ok {
		p.command = c
		if c.flags != nil {
			c.flags(p.flags, p.options)
		}
	}
}
