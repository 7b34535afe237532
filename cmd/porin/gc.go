package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

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
	err = s.print(result, func(w io.Writer) {
		for _, attachment := range result.Stale {
			row(w, "Not valid:", attachment)
		}
		if s.dryRun {
			_, _ = fmt.Fprintln(w, plural(len(result.Stale), "attachment")+" would be deleted")
		} else {
			_, _ = fmt.Fprintln(w, plural(result.Deleted, "attachment")+" deleted")
		}
	})
	if err == nil && result.Withheld != "" {
		err = fmt.Errorf("nothing was deleted: %s", printable(result.Withheld))
	}
	return cmp.Or(err, partsLeft(result.Errors, result.Details))
}

// partsLeft is the failure of a deletion that left parts.
func partsLeft(parts int, details []string) error {
	if parts == 0 {
		return nil
	}
	return fmt.Errorf("%s could not be taken down yet, and the agent tries again: %w",
		plural(parts, "part"), errors.New(printable(strings.Join(details, "; "))))
}

// restoreAccept removes what the agent's start holds.
func restoreAccept(ctx context.Context, s *session, args []string) error {
	var request v1.AcceptRequest
	if len(args) > 0 {
		request.Endpoint = args[0]
	}
	result, err := s.client.AcceptRestore(ctx, request)
	if err != nil {
		return err
	}
	err = s.print(result, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, plural(result.Deleted, "held endpoint")+" removed")
	})
	return cmp.Or(err, partsLeft(result.Errors, result.Details))
}

// heldEndpoints are what the argument of restore accept may be.
func heldEndpoints(ctx context.Context, s *session) (all []cobra.Completion) {
	status, err := s.client.Status(ctx)
	if err != nil {
		return nil
	}
	for _, e := range status.Held.Endpoints {
		all = append(all, cobra.CompletionWithDesc(e.Endpoint, e.Reason))
	}
	return all
}
