package main

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// runInstall runs porin-cni install with the arguments, and returns what it printed. It copies the program of the test.
func runInstall(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(process{args: append([]string{"install"}, arguments...), getenv: func(string) string { return "" }, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// wantInstalled fails unless dir has the program of the test as porin-cni, and nothing else.
func wantInstalled(t *testing.T, dir string) fs.FileInfo {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "porin-cni" {
		t.Fatalf("the folder has %v, %v; want porin-cni alone", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o755 {
		t.Errorf("porin-cni has the mode %v", info.Mode())
	}
	path := filepath.Join(dir, "porin-cni")
	if got, want := readFile(t, path), readFile(t, "/proc/self/exe"); !bytes.Equal(got, want) {
		t.Errorf("porin-cni has %d bytes that differ from the %d of the program", len(got), len(want))
	}
	return info
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t *testing.T, path string, content []byte, mode fs.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

func mount(t *testing.T, source, dir, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, dir, kind, flags, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

func TestInstall(t *testing.T) {
	program := readFile(t, "/proc/self/exe")
	other := bytes.Clone(program)
	other[len(other)-1]++ // of the same size
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, path string)
	}{
		{"NoFile", func(*testing.T, string) {}},
		{"OtherProgram", func(t *testing.T, path string) { writeFile(t, path, other, 0o755) }},
		{"OtherMode", func(t *testing.T, path string) { writeFile(t, path, program, 0o644) }},
		{"BrokenLink", func(t *testing.T, path string) {
			if err := os.Symlink("/nowhere", path); err != nil {
				t.Fatal(err)
			}
		}},
		{"AfterInterruption", func(t *testing.T, path string) {
			writeFile(t, filepath.Join(filepath.Dir(path), ".porin-cni.new"), program[:1000], 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, filepath.Join(dir, "porin-cni"))
			code, stdout, stderr := runInstall(t, dir)
			if code != 0 || stdout != dir+"/porin-cni is installed\n" || stderr != "" {
				t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
			}
			wantInstalled(t, dir)
		})
	}
}

func TestInstallUnchanged(t *testing.T) {
	dir := t.TempDir()
	runInstall(t, dir)
	before := wantInstalled(t, dir)
	writeFile(t, filepath.Join(dir, ".porin-cni.new"), []byte("of an interrupted run"), 0o755)
	code, stdout, stderr := runInstall(t, dir)
	if code != 0 || stdout != dir+"/porin-cni is there already\n" || stderr != "" {
		t.Errorf("exit code %d, printed %q and %q", code, stdout, stderr)
	}
	if after := wantInstalled(t, dir); !os.SameFile(before, after) {
		t.Error("the file was replaced by one with the same content")
	}
}

// TestInstallOpenFile: a runtime that has opened the previous program still reads that.
func TestInstallOpenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "porin-cni")
	writeFile(t, path, []byte("previous"), 0o755)
	previous, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer previous.Close()
	runInstall(t, dir)
	wantInstalled(t, dir)
	content := make([]byte, 100)
	if n, err := previous.Read(content); err != nil || string(content[:n]) != "previous" {
		t.Errorf("the open file has %q, %v", content[:n], err)
	}
}

// wantRefused fails unless install ends with 1 and one line that has the text, and leaves the folder as it is.
func wantRefused(t *testing.T, text string, arguments ...string) {
	t.Helper()
	var before, after []os.DirEntry
	if len(arguments) > 0 {
		before, _ = os.ReadDir(arguments[0])
	}
	code, stdout, stderr := runInstall(t, arguments...)
	if code != 1 || stdout != "" || !strings.Contains(stderr, text) {
		t.Errorf("exit code %d, printed %q and %q, want 1 and %q", code, stdout, stderr, text)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "porin-cni install: ") {
		t.Errorf("%q is no line that names the command", stderr)
	}
	if len(arguments) > 0 {
		after, _ = os.ReadDir(arguments[0])
	}
	if len(before) != len(after) {
		t.Errorf("the folder had %v, and has %v", before, after)
	}
}

func TestInstallRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	writeFile(t, file, nil, 0o644)
	wantRefused(t, "usage: porin-cni install DIR")
	wantRefused(t, "usage: porin-cni install DIR", dir, dir)
	wantRefused(t, "with an absolute path", "opt/cni/bin")
	wantRefused(t, "no such file or directory: name the folder", filepath.Join(dir, "missing"))
	wantRefused(t, "not a directory: name the folder", file)
}

func TestInstallReadOnlyFolder(t *testing.T) {
	testutil.Root(t)
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0, "")
	remount := func(flags uintptr) {
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	remount(unix.MS_RDONLY)
	wantRefused(t, "read-only file system: mount the folder writable", dir)
	remount(0)
	runInstall(t, dir)
	remount(unix.MS_RDONLY)
	if code, stdout, stderr := runInstall(t, dir); code != 0 {
		t.Errorf("the plugin is there already: exit code %d, printed %q and %q", code, stdout, stderr)
	}
}

func TestInstallFullDisk(t *testing.T) {
	testutil.Root(t)
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "tmpfs", 0, "size=1m")
	path := filepath.Join(dir, "porin-cni")
	writeFile(t, path, []byte("previous"), 0o755)
	wantRefused(t, "no space left on device: free disk space on the node", dir)
	if content := readFile(t, path); string(content) != "previous" {
		t.Errorf("porin-cni has %d bytes of something else", len(content))
	}
}

// TestInstallOtherOwner: root of a container without CAP_DAC_OVERRIDE may not write to folders of other users.
func TestInstallOtherOwner(t *testing.T) {
	testutil.Root(t)
	testutil.NeedPrograms(t, "setpriv")
	dir := t.TempDir()
	plugin := filepath.Join(testutil.Build(t), "porin-cni")
	if err := os.Chown(dir, 1001, 1001); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("setpriv", "--bounding-set=-all", "--inh-caps=-all", plugin, "install", dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied: give the folder to root") {
		t.Errorf("%v: %s", err, out)
	}
}
