package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPolicyExample runs the first example of docs/policy.md, for pods without labels. The output of its commands is
// the page's, except for addresses.
func TestPolicyExample(t *testing.T) {
	r := newRig(t)
	r.named("demo", "web")
	r.named("demo", "client")
	page, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```console\n")
	example, _, _ := strings.Cut(rest, "```")
	file := filepath.Join(t.TempDir(), "web.yaml")
	addresses := regexp.MustCompile(`(?m), [0-9.]+$`)
	for _, step := range strings.Split(example, "$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		if command == "cat web.yaml" {
			if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		args := strings.Fields(strings.ReplaceAll(command, "web.yaml", file))
		got := r.cli(args[1:]...)
		if want := addresses.ReplaceAllString(strings.TrimSpace(want), ""); addresses.ReplaceAllString(strings.TrimSpace(got.out), "") != want || got.err != "" {
			t.Errorf("%s prints\n%s%s\nwant\n%s", command, got.out, got.err, want)
		}
	}
}
