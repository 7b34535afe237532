package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

var quote = regexp.MustCompile("(?s)\\]\\((docs/example/[^)]+)\\):\n\n```go\n(.*?)```\n")

func TestGuideExample(t *testing.T) {
	guide := read(t, root+"/CONTRIBUTING.md")
	quotes := quote.FindAllStringSubmatch(guide, -1)
	if n := strings.Count(guide, "```go\n"); n == 0 || len(quotes) != n {
		t.Errorf("%d of %d Go blocks of CONTRIBUTING.md name the file that they are of", len(quotes), n)
	}
	for _, match := range quotes {
		if !strings.Contains(read(t, filepath.Join(root, match[1])), match[2]) {
			t.Errorf("CONTRIBUTING.md quotes what %s does not have:\n%s", match[1], match[2])
		}
	}
}

var change = regexp.MustCompile("(?s)`([^`\n]+)`:\n\n```diff\n(.*?)```\n")

// TestGuideWorks adds the example to a copy of the repository as CONTRIBUTING.md says, and runs the tests that it
// names.
func TestGuideWorks(t *testing.T) {
	if !testutil.Heavy() {
		t.Skip("it compiles the agent anew: make test runs it")
	}
	guide, dir := read(t, root+"/CONTRIBUTING.md"), t.TempDir()
	for _, folder := range []string{"api", "bpf", "cells", "cmd", "deploy", "docs", "internal"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		write(t, filepath.Join(dir, file), read(t, filepath.Join(root, file)))
	}
	if err := os.CopyFS(filepath.Join(dir, "cells/quota"), os.DirFS(filepath.Join(root, "docs/example/quota"))); err != nil {
		t.Fatal(err)
	}
	changes := change.FindAllStringSubmatch(guide, -1)
	if n := strings.Count(guide, "```diff\n"); n == 0 || len(changes) != n {
		t.Fatalf("%d of %d changes in CONTRIBUTING.md name their file", len(changes), n)
	}
	for _, match := range changes {
		path := filepath.Join(dir, match[1])
		text := read(t, path)
		for hunk := range strings.SplitSeq(match[2], "@@\n") {
			before, after := sides(hunk)
			if strings.Count(text, before) != 1 {
				t.Fatalf("%s has this %d times, want it once:\n%s", match[1], strings.Count(text, before), before)
			}
			text = strings.Replace(text, before, after, 1)
		}
		write(t, path, text)
	}
	run(t, dir, "test", "-trimpath", "-run", "Reference$", "./cmd/agent", "./api/v1/openapi", "-reference.write") // make reference
	run(t, dir, "test", "-trimpath", "./cells", "./cells/quota", "./cmd/agent", "./api/v1/openapi")
	for page, want := range map[string]string{
		"agent.md": "`--quota-endpoints`", "api.md": "GET /v1/quota", "metrics.md": "`porin_quota_endpoints`", "findings.md": "`quota-differs`",
	} {
		if !strings.Contains(read(t, filepath.Join(dir, "docs/reference", page)), want) {
			t.Errorf("docs/reference/%s lacks %s", page, want)
		}
	}
}

// sides returns the lines that a part of a diff expects, and its resulting lines.
func sides(hunk string) (before, after string) {
	for line := range strings.Lines(hunk) {
		switch line[0] {
		case '-':
			before += line[1:]
		case '+':
			after += line[1:]
		default:
			before += line[1:]
			after += line[1:]
		}
	}
	return before, after
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
