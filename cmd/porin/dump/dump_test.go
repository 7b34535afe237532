package dump_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cmd/porin/dump"
)

func newDump(t *testing.T, limit int64) *dump.Dump {
	t.Helper()
	return dump.New("a node", time.Unix(0, 0), limit, new(bytes.Buffer))
}

// written returns the archive, its page, and the names of its files.
func written(t *testing.T, d *dump.Dump) (archive []byte, page string, names []string) {
	t.Helper()
	var out bytes.Buffer
	if _, err := d.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	archive = bytes.Clone(out.Bytes())
	z, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return archive, page, names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		if header.Name == dump.Index {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			page = string(text)
		}
	}
}

// TestLimit leaves out what does not fit, and takes what still does.
func TestLimit(t *testing.T) {
	d := newDump(t, 1<<20)
	random := make([]byte, 700<<10)
	_, _ = rand.Read(random)
	for _, err := range []error{d.Add("one", random), d.Add("two", random), d.Add("three", make([]byte, 8<<20)), d.Add("four", make([]byte, 33<<20))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	archive, page, names := written(t, d)
	if want := "README.txt one three"; strings.Join(names, " ") != want || len(archive) > 1<<20 {
		t.Errorf("files %q in %d bytes, want %s", names, len(archive), want)
	}
	for _, want := range []string{"two: the archive would have more than 1 MiB", "four: it has 33 MiB, more than 32"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}

// TestHostileArchive has an archive with a file of 1 TiB that takes no room, a file without a name, and control
// characters.
func TestHostileArchive(t *testing.T) {
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	for _, h := range []*tar.Header{
		{Name: "", Mode: 0o644, Format: tar.FormatPAX}, {Name: "\x1b[2J", Mode: 0o644, Format: tar.FormatPAX},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	d := newDump(t, 0)
	d.Missing("nodes/n2", errors.New("\x1b[2Jno\u009b"))
	if err := errors.Join(d.AddArchive("nodes/n1", archive.Bytes()), d.AddArchive("nodes/sparse", sparse(t))); err != nil {
		t.Fatal(err)
	}
	_, page, names := written(t, d)
	if want := "README.txt nodes/n1/_ nodes/n1/__2J nodes/sparse/file"; strings.Join(names, " ") != want {
		t.Errorf("files %q, want %s", names, want)
	}
	if strings.ContainsAny(page, "\x1b\u009b") || !strings.Contains(page, "nodes/sparse: its archive cannot be read: its files have more than 64 MiB") {
		t.Errorf("the page is %q", page)
	}
}

// sparse is an archive with a file of 1 TiB of holes, as GNU tar writes it, after a link with a size below zero.
func sparse(t *testing.T) []byte {
	t.Helper()
	link := tarHeader('2', func(header []byte) {
		copy(header[124:], "\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00") // in binary: -1 << 48
	})
	holes := tarHeader('S', func(header []byte) {
		copy(header[386:], "20000000000\x0000000000000\x00") // one empty part at the end, and no further blocks of the map
		header[483], header[494-6] = 0x80, 1                 // the real size, in binary: 1 << 40
	})
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	_, _ = z.Write(slices.Concat(link, holes, make([]byte, 1024)))
	_ = z.Close()
	return archive.Bytes()
}

func tarHeader(kind byte, fill func([]byte)) []byte {
	header := make([]byte, 512)
	field := func(at int, text string) { copy(header[at:], text) }
	field(0, "file")
	field(100, "0000644\x00")
	field(108, "0000000\x00")
	field(116, "0000000\x00")
	field(124, "00000000000\x00") // of what is in the archive
	field(136, "00000000000\x00")
	header[156] = kind
	field(257, "ustar  \x00")
	fill(header)
	sum := 8 * int(' ')
	for i, b := range header {
		if i < 148 || i >= 156 {
			sum += int(b)
		}
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return header
}

// TestAddArchive adds a whole archive, with a file that tries to leave its folder, a truncated one, and a web page.
func TestAddArchive(t *testing.T) {
	node := newDump(t, dump.NodeLimit)
	node.Missing("health.json", errors.New("no answer\nat all"))
	if err := errors.Join(node.Add("status.json", []byte("{}")), node.Add("../../etc/passwd", []byte("root"))); err != nil {
		t.Fatal(err)
	}
	archive, _, _ := written(t, node)
	d := newDump(t, 0)
	for name, content := range map[string][]byte{"nodes/whole": archive, "nodes/none": []byte("<html>"), "nodes/half": archive[:len(archive)-20]} {
		if err := d.AddArchive(name, content); err != nil {
			t.Fatal(err)
		}
	}
	_, page, names := written(t, d)
	for _, want := range []string{"nodes/whole/README.txt", "nodes/whole/status.json", "nodes/whole/____etc_passwd"} {
		if !strings.Contains(strings.Join(names, " "), want) {
			t.Errorf("files %q, want %s", names, want)
		}
	}
	for _, want := range []string{"nodes/none: its archive cannot be read", "nodes/half: its archive cannot be read"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q:\n%s", want, page)
		}
	}
}
