package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

func helpCommand(_ context.Context, s *session, args []string) error {
	if _, ok := find(strings.Join(args, " ")); !ok && len(below(args)) == 0 {
		return usageOf([]string{"help"}, fmt.Sprintf("unknown command %q", strings.Join(args, " ")))
	}
	return help(s.out, args)
}

// help explains one command, a group of commands, or all.
func help(w io.Writer, words []string) error {
	text := new(strings.Builder)
	if c, ok := find(strings.Join(words, " ")); ok {
		helpOne(text, c)
	} else {
		helpGroup(text, words)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func helpOne(w io.Writer, c command) {
	o := defaultOptions(noEnvironment)
	fs := o.flags()
	if c.flags != nil {
		c.flags(fs, &o)
	}
	_, _ = fmt.Fprintln(w, present("Usage: porin", c.name, c.args, "[FLAGS]"))
	_, _ = fmt.Fprintf(w, "\n%s.\n", capital(c.short))
	if c.long != "" {
		_, _ = fmt.Fprintf(w, "\n%s\n", c.long)
	}
	_, _ = fmt.Fprintf(w, "\nFlags:\n%s", fs.FlagUsages())
}

func helpGroup(w io.Writer, words []string) {
	prefix := strings.Join(words, " ")
	_, _ = fmt.Fprintln(w, present("Usage: porin", prefix, "COMMAND [FLAGS]"))
	if prefix == "" {
		_, _ = fmt.Fprint(w, "\nPorin gives the containers of this node their network; this is the way to ask its agent.\n")
	}
	_, _ = fmt.Fprint(w, "\nCommands:\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		if prefix == "" || strings.HasPrefix(c.name, prefix+" ") {
			_, _ = fmt.Fprintf(tw, "  %s\t%s\n", present(c.name, c.args), c.short)
		}
	}
	_ = tw.Flush()
	o := defaultOptions(noEnvironment)
	_, _ = fmt.Fprintf(w, "\nFlags:\n%s\n%s\n", o.flags().FlagUsages(), aboutExit)
}

func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// noEnvironment is for help, which shows the same defaults everywhere.
func noEnvironment(string) string { return "" }
