package main

import (
	"context"
	"embed"
	"fmt"
	"strings"
)

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
