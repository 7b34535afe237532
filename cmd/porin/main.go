// Command porin is the operator's command line of the Porin agent.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/datapath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], environment{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stderr), colours: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "", getenv: os.Getenv, now: time.Now, inspect: datapath.Inspect,
	})
	stop()
	os.Exit(code)
}

// environment is all that the program takes from the process it runs in.
type environment struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is one
	colours  bool // out is one, and shows them
	getenv   func(string) string
	now      func() time.Time
	inspect  func(bpfRoot string) (datapath.Inspection, error)
}

// session is one run of a command.
type session struct {
	environment
	options
	client *client.Client
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, env environment) int {
	err := execute(ctx, args, env)
	if err != nil {
		_, _ = fmt.Fprintln(env.err, "porin:", printableLines(err.Error()))
	}
	return exitCode(err)
}

func execute(ctx context.Context, args []string, env environment) error {
	if len(args) > 0 && args[0] == completeCommand {
		complete(ctx, args[1:], env)
		return nil
	}
	call, err := parse(args, env.getenv)
	if err != nil {
		return err
	}
	if call.options.help {
		return help(env.out, call.words)
	}
	s := &session{environment: env, options: call.options, client: client.New(call.options.socket)}
	defer s.client.Close()
	if !call.command.endless(s) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	return call.command.run(ctx, s, call.args)
}
