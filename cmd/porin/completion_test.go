package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCompletionBash presses the tab key in a real bash, at "porin endpoint g".
func TestCompletionBash(t *testing.T) {
	bash := shell(t, "bash")
	for typed, want := range map[string]string{
		"porin endpoint g":         "get",
		"porin st":                 "status",
		"porin endpoint list -o '": "", // an open quote completes to nothing
		"porin endpoint list -o ":  "table wide json",
		"porin endpoint get ":      "1 2",
	} {
		words := strings.Split(typed, " ")
		// The function is of the package bash-completion.
		script := `_get_comp_words_by_ref() {
				words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
			}
			compopt() { :; } # works only when the tab key is pressed
			source <(porin completion bash)
			COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
			__start_porin
			echo "${COMPREPLY[@]}"`
		got := inShell(t, exec.CommandContext(t.Context(), bash, append([]string{"-c", script, "bash"}, words...)...))
		if strings.TrimSpace(got) != want {
			t.Errorf("%q: completes to %q, want %q", typed, got, want)
		}
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, name := range []string{"bash", "zsh", "fish"} {
		t.Run(name, func(t *testing.T) {
			program := shell(t, name)
			if out := inShell(t, exec.CommandContext(t.Context(), "sh", "-c", `porin completion "$1" >script && "$2" -n script; rm script`, "sh", name, program)); out != "" {
				t.Errorf("%s -n: %s", name, out)
			}
		})
	}
}

func shell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("REQUIRE_SHELLS") == "1" {
		t.Fatalf("REQUIRE_SHELLS=1, and there is no %s", name)
	}
	if err != nil {
		t.Skipf("no %s here", name)
	}
	return path
}

// inShell runs cmd with the program on its PATH, and an agent with two endpoints.
func inShell(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "porin")); err != nil {
		t.Fatal(err)
	}
	agent, err := startFakeAgent(filepath.Join(dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.close()
	for range 2 {
		if err := agent.change("add"); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), socketVariable+"="+filepath.Join(dir, "agent.sock"),
		"GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
