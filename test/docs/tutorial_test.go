package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/cells/policy/manifest"
)

var (
	console = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	script  = regexp.MustCompile(`test/kubernetes/[a-z]+\.sh|deploy/[a-z]+\.yaml`)
	porin   = regexp.MustCompile(`/porin ((?:[a-z]+ ?)+)`)
)

// TestTutorialCommands wants commands of docs/tutorial.md that a program can run: complete lines, of files and of
// commands of porin that exist.
func TestTutorialCommands(t *testing.T) {
	commands, files := tutorial(t)
	if len(commands) == 0 {
		t.Fatal("docs/tutorial.md has no commands")
	}
	reference := read(t, root+"/docs/reference/porin.md")
	for _, command := range commands {
		if strings.ContainsAny(command, "<>") || strings.Contains(command, "...") {
			t.Errorf("a reader has to complete %q", command)
		}
		for _, path := range script.FindAllString(command, -1) {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%q: %v", command, err)
			}
		}
		if _, name, ok := strings.Cut(command, " apply -f "); ok && files[name] == "" && !strings.HasPrefix(name, "deploy/") {
			t.Errorf("%q applies a file that the tutorial does not show before", command)
		}
		if match := porin.FindStringSubmatch(command); match != nil && !strings.Contains(reference, "\n## porin "+strings.TrimSpace(match[1])+"\n") {
			t.Errorf("%q runs a command that porin does not have", command)
		}
	}
}

func TestTutorialPolicy(t *testing.T) {
	_, files := tutorial(t)
	if policies, err := manifest.Read([]byte(files["web.yaml"])); err != nil || len(policies) != 1 {
		t.Errorf("web.yaml has %d policies, want 1: %v", len(policies), err)
	}
}

// tutorial returns the commands of docs/tutorial.md in order, and the files that its commands "cat" show.
func tutorial(t *testing.T) (commands []string, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	for _, block := range console.FindAllStringSubmatch(read(t, root+"/docs/tutorial.md"), -1) {
		for _, step := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, output, _ := strings.Cut(step, "\n")
			if name, ok := strings.CutPrefix(command, "cat "); ok {
				files[name] = output
			}
			commands = append(commands, command)
		}
	}
	return commands, files
}
