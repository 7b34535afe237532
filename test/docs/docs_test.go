// Package docs compares the documents with the code.
package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pages returns the text of each Markdown file in the repository, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin") {
			return fs.SkipDir
		}
		if err == nil && filepath.Ext(path) == ".md" {
			texts[path] = read(t, path)
		}
		return err
	})
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d Markdown files, %v", len(texts), err)
	}
	return texts
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEmbeddingExample(t *testing.T) {
	_, body, ok := strings.Cut(read(t, "../embed/main.go"), "package main\n\n")
	if !ok {
		t.Fatal("test/embed/main.go has no package clause")
	}
	page := read(t, root+"/docs/embedding.md")
	if !strings.Contains(page, "```go\npackage main\n\n"+body+"```\n") {
		t.Error("docs/embedding.md does not show test/embed/main.go as it is")
	}
	for _, file := range embeddingExamples(t) {
		_, body, ok := strings.Cut(read(t, file), "\n)\n\n")
		if !ok || !strings.Contains(page, "```go\n"+body+"```\n") {
			t.Errorf("docs/embedding.md does not show %s as it is, without the imports", file)
		}
	}
}

// embeddingExamples returns the files with the examples of single cells.
func embeddingExamples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../embed/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("test/embed has no examples: %v", err)
	}
	return files
}

// TestEmbeddingExampleRuns runs the example, which is a module of its own.
func TestEmbeddingExampleRuns(t *testing.T) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "../embed"
	out, err := cmd.CombinedOutput()
	if want := "1 ready [10.244.1.2 fd00:10:244:1::2] <nil>"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v, want %q in:\n%s", err, want, out)
	}
}

// TestEmbeddingExamplesOfCells runs the examples of that module.
func TestEmbeddingExamplesOfCells(t *testing.T) {
	cmd := exec.Command("go", "test", "-vet=off", "-v", "-run", "^Example_", ".") // vet would read all that it depends on
	cmd.Dir = "../embed"
	out, err := cmd.CombinedOutput()
	if got, want := strings.Count(string(out), "--- PASS: Example_"), len(embeddingExamples(t)); err != nil || got != want {
		t.Errorf("%d of %d examples passed, %v:\n%s", got, want, err, out)
	}
}

var makeTarget = regexp.MustCompile("(?:`|\\$ )(?:sudo )?make ([a-z][a-z0-9-]*)")

func TestMakeTargetsExist(t *testing.T) {
	makefile := read(t, root+"/Makefile")
	for path, text := range pages(t) {
		for _, match := range makeTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+match[1]+":") {
				t.Errorf("%s names make %s, which the Makefile lacks", path, match[1])
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func TestDocumentLinks(t *testing.T) {
	for path, text := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := filepath.Join(filepath.Dir(path), target)
			if target == "" {
				file = path
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", path, match[1], err)
			} else if anchor != "" && !hasHeading(read(t, file), anchor) {
				t.Errorf("%s links to %s, which has no such heading", path, match[1])
			}
		}
	}
}

// hasHeading reports whether a page has a heading with that anchor, as GitHub makes them.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if ok && strings.HasPrefix(line, "#") && anchorOf(title) == anchor {
			return true
		}
	}
	return false
}

var notInAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)

func anchorOf(title string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
}

var flagName = regexp.MustCompile(`[^-\w](--[a-z][a-z0-9-]+)`)

// otherCommand is a line of a program that is not Porin's, up to porin in the agent's pod.
var otherCommand = regexp.MustCompile(`(?m)^firewall-cmd .*$|^\$ .*\bkubectl .*?(?: -- /porin|$)`)

// TestFlagsExist finds a flag that was renamed or removed, and that a page for operators still names.
func TestFlagsExist(t *testing.T) {
	known := read(t, root+"/docs/reference/agent.md") + read(t, root+"/docs/reference/proxy.md") + read(t, root+"/docs/reference/porin.md")
	for path, text := range pages(t) {
		if dir := filepath.Dir(path); dir != root && dir != root+"/docs" || filepath.Base(path) == "CHANGELOG.md" {
			continue
		}
		for _, match := range flagName.FindAllStringSubmatch(otherCommand.ReplaceAllString(text, ""), -1) {
			if !regexp.MustCompile(match[1] + `\b`).MatchString(known) {
				t.Errorf("%s names %s, which neither porin-agent nor porin-proxy nor porin has", path, match[1])
			}
		}
	}
}
