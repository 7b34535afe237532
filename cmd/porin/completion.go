package main

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	v1 "porin.dev/porin/api/v1"
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
	line := parsePartial(before, env.getenv)
	switch {
	case line.open != nil && line.open.Name == "pool":
		return line.ask(ctx, env, poolNames)
	case line.open != nil && (line.open.Name == "from" || line.open.Name == "to" || line.open.Name == "pod"):
		return line.ask(ctx, env, podNames)
	case line.open != nil && line.open.Name == "verdict":
		return wordsOf(v1.FlowVerdicts())
	case line.open != nil && line.open.Name == "reason":
		return wordsOf(dropReasons())
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
	for _, word := range subcommands(words) {
		path := append(words[:len(words):len(words)], word)
		about := strings.Join(subcommands(path), ", ")
		if c, ok := findCommand(strings.Join(path, " ")); ok {
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
		return wordsOf(c.all)
	}
	return nil
}

func wordsOf(words []string) (all []candidate) {
	for _, word := range words {
		all = append(all, candidate{word: word})
	}
	return all
}

// partial is a command line that is still being typed, as far as it can be understood.
type partial struct {
	words     []string
	command   command // without run while it is not known
	arguments int     // how many it has
	flags     *pflag.FlagSet
	options   *options
	open      *pflag.Flag // the flag whose value comes next
}

func parsePartial(typed []string, getenv func(string) string) *partial {
	o := defaultOptions(getenv)
	p := &partial{flags: o.flags(), options: &o}
	for _, word := range typed {
		switch {
		case p.open != nil:
			_ = p.open.Value.Set(word) // a wrong value is reported when the command runs
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
	if !slices.Contains(subcommands(p.words), word) {
		return
	}
	p.words = append(p.words, word)
	if c, ok := findCommand(strings.Join(p.words, " ")); ok {
		p.command = c
		if c.flags != nil {
			c.flags(p.flags, p.options)
		}
	}
}

// scripts ask [completeCommand] for every word, so that they never have to be written anew.
//
//go:embed completion
var scripts embed.FS

const aboutCompletion = `For the running shell:
  bash   source <(porin completion bash)
  zsh    source <(porin completion zsh)
  fish   porin completion fish | source`

func shells() []string { return []string{"bash", "zsh", "fish"} }

func shellNames(context.Context, *session) (all []candidate) {
	for _, shell := range shells() {
		all = append(all, candidate{word: shell})
	}
	return all
}

func completionScript(_ context.Context, s *session, args []string) error {
	script, err := scripts.ReadFile("completion/porin." + args[0])
	if err != nil {
		return usageOf([]string{"completion"}, fmt.Sprintf("unknown shell %q: want one of %s", args[0], strings.Join(shells(), ", ")))
	}
	_, err = s.out.Write(script)
	return err
}
