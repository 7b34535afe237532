package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"porin.dev/porin/api/v1/client"
)

// completeCommand is what the completion scripts call: its arguments are the words of the command line so far, the
// last one being the word to complete, which may be empty. It prints one candidate a line: a word, and after a tab
// what it is.
const completeCommand = "__complete"

// candidate is a word that may come next.
type candidate struct{ word, about string }

// completionTimeout is how long a person who has pressed the tab key waits for the agent.
const completionTimeout = time.Second

// complete never fails: at worst it knows nothing.
func complete(ctx context.Context, typed []string, env environment) {
	if len(typed) == 0 {
		return
	}
	before, current := typed[:len(typed)-1], typed[len(typed)-1]
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	for _, c := range candidates(ctx, before, current, env) {
		if strings.HasPrefix(c.word, current) {
			_, _ = fmt.Fprintf(env.out, "%s\t%s\n", c.word, c.about)
		}
	}
}

func candidates(ctx context.Context, before []string, current string, env environment) []candidate {
	line := read(before, env.getenv)
	switch {
	case line.open != nil && line.open.Name == "pool":
		return line.ask(ctx, env, poolNames)
	case line.open != nil:
		return valuesOf(line.open)
	case strings.HasPrefix(current, "-"):
		return flagsOf(line.flags)
	case line.command.run == nil:
		return commandsBelow(line.words)
	case line.command.arguments != nil && line.arguments == 0:
		return line.ask(ctx, env, line.command.arguments)
	}
	return nil
}

// ask asks the agent.
func (p *partial) ask(ctx context.Context, env environment, what func(context.Context, *session) []candidate) []candidate {
	s := &session{environment: env, options: *p.options, client: client.New(p.options.socket)}
	defer s.client.Close()
	return what(ctx, s)
}

func commandsBelow(words []string) (all []candidate) {
	for _, word := range below(words) {
		path := append(words[:len(words):len(words)], word)
		about := strings.Join(below(path), ", ")
		if c, ok := find(strings.Join(path, " ")); ok {
			about = c.short
		}
		all = append(all, candidate{word, about})
	}
	return all
}

func flagsOf(fs *pflag.FlagSet) (all []candidate) {
	fs.VisitAll(func(f *pflag.Flag) {
		_, about := pflag.UnquoteUsage(f)
		all = append(all, candidate{"--" + f.Name, about})
	})
	return all
}

// valuesOf knows those of a choice; for the others the shell offers file names.
func valuesOf(f *pflag.Flag) (all []candidate) {
	if c, ok := f.Value.(*choice); ok {
		for _, value := range c.all {
			all = append(all, candidate{word: value})
		}
	}
	return all
}
