package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func gc(ctx context.Context, s *session, _ []string) error {
	switch {
	case s.network == "":
		return usageOf([]string{"gc"}, "want --network")
	case s.valid == nil && !s.dryRun:
		return usageOf([]string{"gc"}, "want --valid, the attachments that are to stay (--valid= for none), or --dry-run")
	}
	result, err := s.client.CollectGarbage(ctx, v1.GCRequest{
		Network: s.network, Valid: append([]string{}, s.valid...), DryRun: s.dryRun,
	})
	if err != nil {
		return err
	}
	if err := s.print(result, func(w io.Writer) { gcTable(w, result, s.dryRun) }); err != nil {
		return err
	}
	if result.Withheld != "" {
		return fmt.Errorf("nothing was deleted: %s", printable(result.Withheld))
	}
	return partsLeft(result.Errors, result.Details)
}

func gcTable(w io.Writer, result v1.GCResult, dryRun bool) {
	for _, attachment := range result.Stale {
		row(w, "Not valid:", attachment)
	}
	if dryRun {
		_, _ = fmt.Fprintln(w, plural(len(result.Stale), "attachment")+" would be deleted")
		return
	}
	_, _ = fmt.Fprintln(w, plural(result.Deleted, "attachment")+" deleted")
}

// partsLeft is the failure of a deletion that left parts.
func partsLeft(parts int, details []string) error {
	if parts == 0 {
		return nil
	}
	return fmt.Errorf("%s could not be taken down yet, and the agent tries again: %w",
		plural(parts, "part"), errors.New(printable(strings.Join(details, "; "))))
}
