package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

// completionTimeout is how long a person who has pressed the tab key waits for the agent.
const completionTimeout = time.Second

// candidates returns the words that may come next. Without an agent there are none.
type candidates func(context.Context, *session) []cobra.Completion

// complete is the completion of cobra that asks the agent.
func (s *session) complete(ctx context.Context, of candidates) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	disconnect, err := s.connect()
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
