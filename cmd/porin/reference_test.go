package main

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil/reference"
)

func TestCommandReference(t *testing.T) {
	page := new(strings.Builder)
	page.WriteString("# porin\n")
	helpOf := func(words ...string) {
		page.WriteString("\n```\n")
		run(t.Context(), append(words, "--help"), environment{out: page, err: page, getenv: func(string) string { return "" }})
		page.WriteString("```\n")
	}
	helpOf()
	for _, c := range commands() {
		fmt.Fprintf(page, "\n## porin %s\n", c.name)
		helpOf(strings.Fields(c.name)...)
	}
	reference.Check(t, "porin.md", page.String())
}
