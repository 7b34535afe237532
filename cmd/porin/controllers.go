package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

// controllers is the table of the agent's loops.
func controllers(ctx context.Context, s *session) error {
	list, err := s.client.Controllers(ctx)
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
		row(w, "NAME", "RUNS", "FAILURES", "LAST RUN", "TOOK", "NEXT", "ERROR")
		for _, c := range list {
			runs, last, took, next := "-", "-", "-", "-"
			if c.Runs > 0 {
				runs = strconv.FormatUint(c.Runs, 10)
			}
			if c.LastRun != nil {
				last, took = s.age(*c.LastRun)+" ago", shortDuration(c.Duration)
			}
			if c.Next != nil {
				next = "in " + shortDuration(c.Next.Sub(s.now()).Round(time.Second))
			}
			row(w, c.Name, runs, strconv.Itoa(c.Failures), last, took, next, c.Error)
		}
	})
}

func controllerRun(ctx context.Context, s *session, args []string) error {
	if err := s.client.RunController(ctx, args[0]); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "%s runs now: porin status --controllers shows how it ends\n", printable(args[0]))
	return err
}

func controllerNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Controllers(ctx)
	for _, c := range list {
		all = append(all, cobra.CompletionWithDesc(c.Name, printable(c.Error)))
	}
	return all
}

// healthRows are the cells that are not ok, or have something to say.
func healthRows(w io.Writer, health v1.Health) {
	for _, c := range health.Cells {
		if c.State != "ok" {
			row(w, capital(c.State)+":", c.Cell+", "+c.Reason)
		}
	}
}
