// Command agents reads a cluster as many agents do, with a connection for each, and keeps only where each watch is.
//
//	agents KUBECONFIG COUNT
//
// It reads commands from its input, one a line, and answers each with a line of JSON:
//
//	start         all agents at once, each from where it was
//	stop          all
//	wait VERSION  until all have read the groups of that version; the answer counts their lists and restarts since the start
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: agents KUBECONFIG COUNT")
	}
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	all := make([]*agent, count)
	for i := range all {
		if all[i], err = newAgent(args[0]); err != nil {
			return err
		}
	}
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, argument, _ := strings.Cut(lines.Text(), " ")
		switch command {
		case "start":
			began = time.Now()
			for _, a := range all {
				a.start(ctx)
			}
		case "stop":
			for _, a := range all {
				a.stop()
			}
		case "wait":
			version, err := strconv.ParseUint(argument, 10, 64)
			if err != nil {
				return err
			}
			for _, a := range all {
				for a.groups.version() < version {
					time.Sleep(20 * time.Millisecond)
				}
			}
		default:
			return fmt.Errorf("unknown command %q", command)
		}
		if err := json.NewEncoder(os.Stdout).Encode(sum(all, time.Since(began))); err != nil {
			return err
		}
	}
	return nil
}

// Answer says what all agents have done since the start.
type Answer struct {
	Seconds  float64
	Pages    int64 // of whole lists
	Restarts map[string]int
}

func sum(all []*agent, since time.Duration) Answer {
	answer := Answer{Seconds: since.Seconds(), Restarts: map[string]int{}}
	for _, a := range all {
		for _, f := range a.kinds {
			answer.Pages += f.pages.Load()
			for reason, n := range f.loop.State().Restarts {
				answer.Restarts[string(reason)] += n
			}
		}
	}
	return answer
}
