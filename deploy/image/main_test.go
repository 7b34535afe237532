package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// files are all files of the image.
var files = []string{"porin", "porin-agent", "porin-cni", "porin-proxy"}

var machines = map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}

// TestImage tests the archive that make test-image has built.
func TestImage(t *testing.T) {
	archive, platforms := os.Getenv("PORIN_IMAGE"), strings.Fields(os.Getenv("PORIN_IMAGE_PLATFORMS"))
	if archive == "" {
		t.Skip("make test-image builds the archive and names it")
	}
	root, index := read(t, archive)
	for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
		if got, want := root.Annotations[key], os.Getenv("PORIN_IMAGE_NAME"); got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("the archive is invalid: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	programs := t.TempDir()
	o := options{out: filepath.Join(t.TempDir(), "again.tar"), name: root.Annotations["io.containerd.image.name"], dir: programs, platforms: platforms}
	for _, entry := range manifest.Manifests {
		got = append(got, entry.Platform.String())
		image, err := index.Image(entry.Digest)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(programs, entry.Platform.String())
		extract(t, image, dir)
		t.Run(entry.Platform.String(), func(t *testing.T) {
			labels := testConfig(t, image, entry.Platform)
			o.version, o.revision = labels["org.opencontainers.image.version"], labels["org.opencontainers.image.revision"]
			for _, file := range files {
				testELF(t, filepath.Join(dir, file), machines[entry.Platform.String()])
			}
			testRun(t, dir, entry.Platform.Architecture, o.version)
		})
	}
	if !slices.Equal(got, platforms) {
		t.Errorf("the index is for %v, want %v", got, platforms)
	}

	again, err := o.pack()
	if err != nil {
		t.Fatal(err)
	}
	if again != root.Digest {
		t.Errorf("the same programs give the digest %s at first, and then %s", root.Digest, again)
	}
	if !bytes.Equal(readFile(t, archive), readFile(t, o.out)) {
		t.Error("the same programs give another archive the second time")
	}
}

// TestPackMissingProgram: the archive that is there stays, and no other file appears.
func TestPackMissingProgram(t *testing.T) {
	dir := t.TempDir()
	o := options{out: filepath.Join(dir, "image.tar"), name: "porin.dev/porin:0.1.0", dir: t.TempDir(), platforms: []string{"linux/amd64"}}
	if err := os.WriteFile(o.out, []byte("the previous archive"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := o.pack(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "linux/amd64/porin") {
		t.Errorf("got the error %v, want the missing program", err)
	}
	if content := readFile(t, o.out); string(content) != "the previous archive" {
		t.Errorf("the archive has %d bytes of something else", len(content))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// read returns the index of the images, and the archive's entry for it.
func read(t *testing.T, archive string) (v1.Descriptor, v1.ImageIndex) {
	t.Helper()
	dir := t.TempDir()
	if err := untar(bytes.NewReader(readFile(t, archive)), dir, nil); err != nil {
		t.Fatal(err)
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 {
		t.Fatalf("the archive has %v, want one index", manifest.Manifests)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Manifests[0], index
}

// extract writes the files of the image's only layer to dir, and compares their names and modes.
func extract(t *testing.T, image v1.Image, dir string) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("the image has %d layers, want 1; %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	got := map[string]string{}
	err = untar(content, dir, func(h *tar.Header) {
		got[h.Name] = fmt.Sprintf("type %c, mode %o, owner %d:%d, time %d", h.Typeflag, h.Mode, h.Uid, h.Gid, h.ModTime.Unix())
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, file := range files {
		want[file] = "type 0, mode 755, owner 0:0, time 0"
	}
	if !maps.Equal(got, want) {
		t.Errorf("the image has the files\n%v\nwant\n%v", got, want)
	}
}

func untar(r io.Reader, dir string, each func(*tar.Header)) error {
	for files := tar.NewReader(r); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if each != nil {
			each(header)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.Clean("/"+header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, fs.FileMode(header.Mode)); err != nil {
			return err
		}
	}
}

// testConfig tests the image's configuration, and returns its labels.
func testConfig(t *testing.T, image v1.Image, platform *v1.Platform) map[string]string {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.OS+"/"+file.Architecture != platform.String() {
		t.Errorf("the image is for %s/%s", file.OS, file.Architecture)
	}
	if got := file.Config; !slices.Equal(got.Entrypoint, []string{"/porin-agent"}) || got.Cmd != nil || got.User != "" {
		t.Errorf("the image starts %v %v as user %q", got.Entrypoint, got.Cmd, got.User)
	}
	labels := file.Config.Labels
	for _, name := range []string{"title", "version", "revision", "source", "licenses"} {
		if labels["org.opencontainers.image."+name] == "" {
			t.Errorf("the label org.opencontainers.image.%s is missing", name)
		}
	}
	if len(labels) != 5 {
		t.Errorf("the image has the labels %v", labels)
	}
	return labels
}

// testELF tests that a program is for the machine, and needs no other file to start.
func testELF(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if program.Machine != machine {
		t.Errorf("%s is for %s, want %s", path, program.Machine, machine)
	}
	for _, header := range program.Progs {
		if header.Type == elf.PT_INTERP || header.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has %s: it is not static", path, header.Type)
		}
	}
}

// testRun starts each program, as far as the machine can.
func testRun(t *testing.T, dir, architecture, version string) {
	t.Helper()
	for _, c := range []struct{ command, want string }{
		{"porin-agent version", version},
		{"porin-proxy version", version},
		{"porin version", version},
		{"porin-cni", "porin-cni is a CNI plugin"},
	} {
		program, arguments, _ := strings.Cut(c.command, " ")
		out, err := exec.Command(filepath.Join(dir, program), strings.Fields(arguments)...).CombinedOutput()
		if errors.Is(err, syscall.ENOEXEC) && architecture != runtime.GOARCH {
			t.Logf("not started, as this machine runs no programs for %s: only their ELF headers were tested", architecture)
			return
		}
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v, printed %q, want %q", c.command, err, out, c.want)
		}
	}
	node := t.TempDir()
	if out, err := exec.Command(filepath.Join(dir, "porin-cni"), "install", node).CombinedOutput(); err != nil {
		t.Errorf("porin-cni install: %v, printed %q", err, out)
	} else if !bytes.Equal(readFile(t, filepath.Join(node, "porin-cni")), readFile(t, filepath.Join(dir, "porin-cni"))) {
		t.Error("porin-cni install has written another program than its own")
	}
	t.Logf("started the programs for %s", architecture)
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
