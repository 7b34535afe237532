package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cmd/porin/fleet"
)

// inPage finds commands of this program in a page: lines of an example, and words of a sentence.
var inPage = regexp.MustCompile("(?m)^\\$ (?:sudo )?(?:kubectl )?porin (.*)$|`(?:kubectl )?porin ([a-z][^`]*)`")

// TestPages runs each command of the pages: an example as it is, and one in a sentence, which may lack arguments, with
// --help. The program knows the command and its flags, and of an example the arguments.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 20 {
		t.Fatal(len(pages), err)
	}
	cluster := newFakeCluster(t.TempDir())
	t.Cleanup(cluster.close)
	if err := cluster.add("n1"); err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range inPage.FindAllStringSubmatch(string(text), -1) {
			command, _, _ := strings.Cut(match[1]+match[2], " #")
			if match[2] != "" {
				command += " --help"
			}
			if ran[command] {
				continue
			}
			ran[command] = true
			if says := tryCommand(t, cluster, strings.Fields(command)); says != "" {
				t.Errorf("%s: porin %s: %s", filepath.Base(page), command, says)
			}
		}
	}
	if len(ran) < 50 {
		t.Errorf("%d commands in all pages", len(ran))
	}
	for _, wrong := range []string{"status --nosuch", "nosuch --help", "pool nosuch --help", "cluster status --nosuch --help", "cluster pool nosuch --help"} {
		if tryCommand(t, cluster, strings.Fields(wrong)) == "" {
			t.Errorf("porin %s is taken", wrong)
		}
	}
}

// tryCommand returns what a program says that does not know the command, a flag or an argument.
func tryCommand(t *testing.T, cluster *fakeCluster, command []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // some go on until they are interrupted
	defer cancel()
	dial := func(_, _, _ string) (fleet.Cluster, *client.Client, func(), error) {
		_, records, end, err := cluster.dial("", "", "")
		return silentCluster{}, records, end, err
	}
	var says, prints bytes.Buffer
	code := run(ctx, command, environment{
		in: strings.NewReader("{}"), out: &prints, err: &says, now: func() time.Time { return noon }, inspect: inspect, dial: dial,
		getenv: func(name string) string {
			return map[string]string{socketVariable: cluster.socket("porin-agent-n1")}[name]
		},
	})
	fromAgent := strings.HasSuffix(says.String(), "(invalid)\n")
	switch {
	case code == exitUsage && !fromAgent:
		return says.String()
	case command[len(command)-1] == "--help" && !strings.Contains(prints.String(), "porin "+leadingWords(command)):
		return prints.String()
	}
	return ""
}

// leadingWords are the command's name: up to two words, or three of "cluster".
func leadingWords(command []string) string {
	n, most := 0, 2
	if command[0] == clusterGroup {
		most = 3
	}
	for n < len(command) && n < most && regexp.MustCompile("^[a-z]+$").MatchString(command[n]) {
		n++
	}
	return strings.Join(command[:n], " ")
}
