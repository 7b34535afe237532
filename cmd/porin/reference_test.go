package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/internal/reference"
)

func TestCommandReference(t *testing.T) {
	helpOf := func(words ...string) string {
		var out bytes.Buffer
		if err := help(&out, words); err != nil {
			t.Fatal(err)
		}
		return "```\n" + strings.TrimRight(out.String(), "\n") + "\n```\n"
	}
	var page strings.Builder
	page.WriteString("# porin\n\n" + helpOf())
	for _, c := range commands() {
		fmt.Fprintf(&page, "\n## porin %s\n\n%s", c.name, helpOf(strings.Fields(c.name)...))
	}
	reference.Check(t, "porin.md", page.String())
}
