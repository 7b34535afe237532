package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

const aboutPorin = `Porin gives the containers of this node their network; this is the way to ask its agent.

` + aboutExit

// clusterGroup has the commands that ask all agents of a cluster.
const clusterGroup = "cluster"

// newRoot makes the tree of cobra commands from the table.
func newRoot(ctx context.Context, env environment) *cobra.Command {
	root := newGroup("porin", aboutPorin)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(env.in)
	root.SetOut(env.out)
	root.SetErr(env.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageOf(pathOf(c), flagFault(err)) })
	g := newGlobal(env.getenv)
	g.flags(root.PersistentFlags())
	for name, choice := range map[string]choice{"output": g.output, "color": g.colour} {
		_ = root.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(choice.all, cobra.ShellCompDirectiveNoFileComp)) // there is such a flag
	}
	groups := map[string]*cobra.Command{"": root}
	for _, c := range commands() {
		words := strings.Fields(c.name)
		parent := root
		for i := range len(words) - 1 {
			path := strings.Join(words[:i+1], " ")
			if groups[path] == nil {
				groups[path] = newGroup(words[i], "")
				groups[path].Hidden = c.hidden
				parent.AddCommand(groups[path])
			}
			parent = groups[path]
		}
		parent.AddCommand(c.tree(ctx, env, g))
	}
	delete(groups, "")
	for _, group := range groups {
		var names []string
		for _, c := range group.Commands() {
			names = append(names, c.Name())
		}
		group.Short = strings.Join(names, ", ")
	}
	return root
}

// newGroup makes a command that shows its help.
func newGroup(name, long string) *cobra.Command {
	return &cobra.Command{Use: name, Long: long, Args: cobra.ArbitraryArgs, RunE: func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		text := fmt.Sprintf("unknown command %q", args[0])
		c.SuggestionsMinimumDistance = 2
		if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
			text += fmt.Sprintf(", did you mean %s?", strings.Join(similar, " or "))
		}
		return usageOf(pathOf(c), text)
	}}
}

// tree makes the cobra command of one line of the table.
func (c command) tree(ctx context.Context, env environment, g *global) *cobra.Command {
	s := &session{environment: env, options: options{global: g}}
	path := strings.Fields(c.name)
	t := &cobra.Command{
		Use: joinNonEmpty(path[len(path)-1], c.args), Short: c.short, Long: strings.TrimSpace(capital(c.short) + ".\n\n" + c.long),
		Args: func(_ *cobra.Command, args []string) error { return c.checkArguments(path, args) },
		RunE: func(_ *cobra.Command, args []string) error { return c.execute(ctx, s, path, args) },
	}
	t.Hidden = c.hidden
	t.Flags().SortFlags = false
	if c.flags != nil {
		c.flags(t.Flags(), &s.options)
	}
	t.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if c.arguments == nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.complete(ctx, path[0], c.arguments)
	}
	for name, of := range flagValues {
		// It fails when the command has no such flag.
		_ = t.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return s.complete(ctx, path[0], of)
		})
	}
	return t
}

func (c command) execute(ctx context.Context, s *session, path, args []string) error {
	if s.timeout <= 0 {
		return usageOf(path, "--timeout: want a time above zero, such as 10s")
	}
	if s.colour.value != "auto" {
		s.colours = s.colour.value == "always"
	}
	disconnect, err := s.connect(path[0])
	if err != nil {
		return err
	}
	defer disconnect()
	if c.unbounded == nil || !c.unbounded(s) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	return c.run(ctx, s, args)
}

func (c command) checkArguments(path, args []string) error {
	least, most := c.argumentCount()
	switch {
	case len(args) < least:
		return usageOf(path, fmt.Sprintf("want %s", c.args))
	case most == 0 && len(args) > 0:
		return usageOf(path, fmt.Sprintf("takes no argument, and got %q", args[0]))
	case most > 0 && len(args) > most:
		return usageOf(path, fmt.Sprintf("takes %s only, and got %q too", c.args, args[most]))
	}
	return nil
}

// argumentCount is the number of arguments: at least, and at most (-1: any).
func (c command) argumentCount() (least, most int) {
	words := strings.Fields(c.args)
	for _, word := range words {
		switch {
		case strings.HasSuffix(word, "...]"):
			return least, -1
		case strings.HasSuffix(word, "..."):
			return least + 1, -1
		case !strings.HasPrefix(word, "["):
			least++
		}
	}
	return least, len(words)
}

// pathOf returns the words of a command after porin.
func pathOf(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// completionTimeout is how long a person who has pressed the tab key waits for the agent.
const completionTimeout = time.Second

// candidates returns the words that may come next. Without an agent there are none.
type candidates func(context.Context, *session) []cobra.Completion

// complete is the completion of cobra that asks the agent, or the API server.
func (s *session) complete(ctx context.Context, group string, of candidates) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	disconnect, err := s.connect(group)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer disconnect()
	return of(ctx, s), cobra.ShellCompDirectiveNoFileComp
}

// flagValues has the completion of flags, by name.
var flagValues = map[string]candidates{
	"pool": poolNames, "from": podNames, "to": podNames, "pod": podNames,
	"verdict": words(v1.FlowVerdicts()), "reason": words(dropReasons()),
}

func words(all []string) candidates {
	return func(context.Context, *session) []cobra.Completion { return all }
}
