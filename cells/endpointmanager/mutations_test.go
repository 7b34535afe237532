package endpointmanager_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutation takes one protection out of the manager. The schedules must find that it is gone: else they prove nothing.
type mutation struct {
	name     string // the race that it lets back in
	file     string
	old, new string
	finds    string // a part of what the schedules then say
}

var mutations = []mutation{
	{
		name: "a late ADD crosses a DEL", file: "history.go",
		old:   "ok && spec.Began < deleted {",
		new:   "ok && false {",
		finds: "is there after DEL",
	},
	{
		name: "a stale DEL frees a live address", file: "delete.go",
		old:   "return w.beganAt() > cfg.Began",
		new:   "return false",
		finds: "and is there: false",
	},
	{
		name: "a DEL of an old sandbox removes the new pod's endpoint", file: "service.go",
		old:   "if elders := m.roster.elders(spec); len(elders) > 0 {",
		new:   "if elders := m.roster.elders(spec); false {",
		finds: "published is",
	},
	{
		name: "a rollback watches the wrong error", file: "create.go",
		old:   "if err := m.assemble(ctx, w, namespace, watch); err != nil {",
		new:   "if err := m.assemble(ctx, w, namespace, watch); ctx.Err() != nil {",
		finds: "schedule ",
	},
	{
		name: "a step whose own way back failed is not detached", file: "create.go",
		old:   "ep, err := step.Attach(ctx, w.ep, namespace)",
		new:   "ep, err := step.Attach(ctx, w.ep, namespace)\nif err != nil {\nw.ran--\n}",
		finds: "schedule ",
	},
}

func TestTheSchedulesFindWhatEachProtectionIsFor(t *testing.T) {
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.name, " ", "_"), func(t *testing.T) {
			out, err := runMutated(t, m)
			failed, ok := errors.AsType[*exec.ExitError](err)
			switch {
			case err == nil:
				t.Errorf("all schedules pass without it:\n%s", out)
			case !ok || !strings.Contains(out, "--- FAIL: TestSchedules"):
				t.Fatalf("the schedules did not run: %v %v\n%s", err, failed, out)
			case !strings.Contains(out, m.finds):
				t.Errorf("the schedules say something else than %q:\n%s", m.finds, out)
			}
		})
	}
}

// runMutated runs the schedules on the source with one change, which it makes in a copy.
func runMutated(t *testing.T, m mutation) (string, error) {
	t.Helper()
	path, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(source), m.old) != 1 {
		t.Fatalf("%s has not this line once: %s", m.file, m.old)
	}
	dir := t.TempDir()
	mutant := filepath.Join(dir, m.file)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		mutant: []byte(strings.Replace(string(source), m.old, m.new, 1)), filepath.Join(dir, "overlay.json"): overlay,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-run", "^TestSchedules$", ".", "-schedules", "10000")
	out, err := cmd.CombinedOutput()
	return string(out), err
}
