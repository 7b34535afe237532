package kubernetes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestTutorial runs the commands of docs/tutorial.md on a cluster of one node, and compares what they print with the
// page, except for numbers.
func TestTutorial(t *testing.T) {
	porin(t)
	folder := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "deploy"), filepath.Join(folder, "deploy")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = kubectl("", "delete", "namespace", "demo", "--ignore-not-found", "--timeout=2m") })
	steps := tutorialSteps(t, filepath.Join(root, "docs", "tutorial.md"))
	if len(steps) < 15 {
		t.Fatalf("the page has %d commands after the cluster", len(steps))
	}
	variables := ""
	for _, step := range steps {
		if name, ok := strings.CutPrefix(step.command, "cat "); ok {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(step.output), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		script := "set -e\n" + variables + step.command
		variable, _, isVariable := strings.Cut(step.command, "=$(")
		if isVariable {
			script += "\necho $" + variable
		}
		testutil.Eventually(t, func() error { // a policy or a label is in force a moment later
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Dir = folder
			cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(os.Getenv(envDir), "run", "admin.conf"),
				"PATH="+filepath.Join(os.Getenv(envDir), "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if fails := strings.Contains(step.output, "exit code 1"); (err != nil) != fails {
				return fmt.Errorf("%s: error %v, want one: %t\n%s", step.command, err, fails, out)
			}
			if isVariable {
				variables += variable + "=" + string(out)
			}
			return step.printed(string(out))
		})
		t.Log(step.command)
	}
}

type tutorialStep struct{ command, output string }

var (
	consoleBlock = regexp.MustCompile("(?ms)^```console\n(.*?)^```$")
	number       = regexp.MustCompile(`[0-9][0-9a-zA-Z.:-]*`)
)

// tutorialSteps returns the commands from the installation on to the end of the cluster, with the output that the page
// shows.
func tutorialSteps(t *testing.T, page string) (steps []tutorialStep) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range consoleBlock.FindAllStringSubmatch(string(text), -1) {
		for _, one := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			command, output, _ := strings.Cut(one, "\n")
			steps = append(steps, tutorialStep{command, output})
		}
	}
	named := func(command string) func(tutorialStep) bool {
		return func(s tutorialStep) bool { return s.command == command }
	}
	first, end := slices.IndexFunc(steps, named("kubectl apply -f deploy/porin.yaml")), slices.IndexFunc(steps, named("test/kubernetes/down.sh"))
	if first < 0 || end < first {
		t.Fatal("the page does not install Porin, or does not end the cluster")
	}
	return steps[first:end]
}

// printed wants each line of the page in the output, in its order. Numbers may differ, and spaces. "..." is any lines.
func (s tutorialStep) printed(out string) error {
	got := strings.Split(out, "\n")
	for _, want := range strings.Split(s.output, "\n") {
		if want == "" || want == "..." {
			continue
		}
		at := slices.IndexFunc(got, func(line string) bool { return withoutNumbers(line) == withoutNumbers(want) })
		if at < 0 {
			return fmt.Errorf("%s: the page shows %q, and it printed\n%s", s.command, want, out)
		}
		got = got[at+1:]
	}
	return nil
}

func withoutNumbers(line string) string {
	return strings.Join(strings.Fields(number.ReplaceAllString(line, "N")), " ")
}
