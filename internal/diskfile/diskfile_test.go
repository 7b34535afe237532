package diskfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/diskfile"
)

// TestReplace writes a file twice, and once beside what a writer has left that died.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+".new", []byte("a longer text than the others, half written"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second, longer", "third"} {
		if err := diskfile.Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file is %q, %v, want %q", got, err, text)
		}
		if _, err := os.Stat(path + ".new"); !os.IsNotExist(err) {
			t.Errorf("the new file is left: %v", err)
		}
	}
	if err := diskfile.Replace(filepath.Join(path, "below"), nil); err == nil {
		t.Error("a file below a file was written")
	}
}
