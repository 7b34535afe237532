package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

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
	if err != nil {
		return err
	}
	return partsLeft(result.Errors, result.Details)
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
