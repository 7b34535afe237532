package offline

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cells/policy/names"
)

// TestPrepareJournal reads a journal while another process has it, and then only what was added since. The file stays the one that it is.
func TestPrepareJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	j := open(t, path)
	for i := range 100 {
		add(t, j, 1, fmt.Sprintf("n%d.example", i), "192.0.2.1")
	}
	p := PrepareJournal(path, DefaultLimits())
	defer p.Close()
	if _, err := p.Open(quiet); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v, want %v", err, ErrLocked)
	}
	read, before := j.size, j.fileInfo(t)
	add(t, j, 1, "a.example", "192.0.2.2")
	_, mark := j.List()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(bytes.Repeat([]byte{'x'}, int(read)), 0); err != nil { // who reads it again notices
		t.Fatal(err)
	}
	next, err := p.Open(quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if got, gotMark := next.List(); len(got) != 101 || gotMark != mark {
		t.Errorf("%d names up to %d, want 101 and %d", len(got), gotMark, mark)
	}
	if !os.SameFile(before, next.fileInfo(t)) {
		t.Error("the file was written anew")
	}
}

// TestPrepareJournalReplaced: what was prepared is of no use when the journal was written anew meanwhile, or did not exist.
func TestPrepareJournalReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	none := PrepareJournal(path, DefaultLimits())
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	some := PrepareJournal(path, DefaultLimits())
	_, mark := j.List()
	add(t, j, 1, "b.example", "192.0.2.2")
	if err := j.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*PreparedJournal{"of a file that did not exist": none, "of another file": some} {
		j, err := p.Open(quiet)
		if err != nil {
			t.Fatal(err)
		}
		j.want(t, name, "1 b.example map[192.0.2.2:true]")
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournalRewriteFails: the file that was open stays in use, and nothing is lost.
func TestJournalRewriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	if err := os.MkdirAll(filepath.Join(path+newSuffix, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	limit := j.limits.File
	j.limits.File = j.size + 100
	j.all.bytes = 0 // writing it anew would help
	if err := j.Add(1, "long.example", until(time.Now(), "192.0.2.2", "192.0.2.3", "192.0.2.4"), true); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("%v, want the error of the file", err)
	}
	j.limits.File = limit
	add(t, j, 2, "b.example", "192.0.2.5")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path).want(t, "after a restart", "1 a.example map[192.0.2.1:true]", "2 b.example map[192.0.2.5:true]")
}

// TestJournalRewrite appends to the new file.
func TestJournalRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	before := j.fileInfo(t)
	if err := j.rewrite(); err != nil {
		t.Fatal(err)
	}
	if os.SameFile(before, j.fileInfo(t)) {
		t.Error("the file is the previous one")
	}
	add(t, j, 2, "b.example", "192.0.2.5")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path).want(t, "after a restart", "1 a.example map[192.0.2.1:true]", "2 b.example map[192.0.2.5:true]")
}

func BenchmarkJournal(b *testing.B) {
	path := filepath.Join(b.TempDir(), "names")
	j, err := OpenJournal(path, DefaultLimits(), quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	for i := range DefaultLimits().All {
		if err := j.Add(uint16(i%8), fmt.Sprintf("node-%05d.storage.eu-west-1.provider.example.com", i), one(i, time.Now().Add(time.Hour)), true); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("rewrite", func(b *testing.B) {
		for b.Loop() {
			if err := j.rewrite(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("prepare", func(b *testing.B) {
		for b.Loop() {
			PrepareJournal(path, DefaultLimits()).Close()
		}
	})
	b.Run("look for expired", func(b *testing.B) {
		for b.Loop() {
			j.dropExpired(time.Now(), nil)
		}
	})
}

// TestJournalLine: a line is what the package json makes of it.
func TestJournalLine(t *testing.T) {
	l := line{7, names.Lookup{Endpoint: 5, Name: `a"\001<.example`, Addresses: until(time.Now().Add(time.Hour), "2001:db8::1")}}
	want, err := encode(l)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.append([]byte("x")); err != nil || string(got) != "x"+string(want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
