// Package readme holds the README against the code.
package readme

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheExampleIsTheProgramThatRuns(t *testing.T) {
	source, err := os.ReadFile("../embed/main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, ok := strings.Cut(string(source), "package main\n\n")
	if !ok {
		t.Fatal("test/embed/main.go has no package clause")
	}
	if !strings.Contains(readme(t), "```go\npackage main\n\n"+body+"```\n") {
		t.Error("the README does not show test/embed/main.go as it is")
	}
}

// TestAnOutsideModuleEmbedsCells runs the example, which is a module of its own.
func TestAnOutsideModuleEmbedsCells(t *testing.T) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "../embed"
	out, err := cmd.CombinedOutput()
	if want := "1 ready [10.244.1.2 fd00:10:244:1::2] <nil>"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v, want %q in:\n%s", err, want, out)
	}
}

var target = regexp.MustCompile("`(?:sudo )?make ([a-z]+)")

func TestEveryMakeTargetOfTheREADMEExists(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range target.FindAllStringSubmatch(readme(t), -1) {
		if !strings.Contains(string(makefile), "\n"+match[1]+":") {
			t.Errorf("the README names make %s, which the Makefile lacks", match[1])
		}
	}
}
