// Package dump writes archives for support: tar.gz, with a page at the front that says what is missing, and why.
//
//	porin sysdump         --> [Dump] of one node --> tar.gz of at most [NodeLimit]
//	porin cluster sysdump --> [Dump] of the cluster <-- the archives of the nodes
package dump

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// NodeLimit bounds the archive of one node, in bytes.
const NodeLimit = 5 << 20

// maxFile bounds one file before it is compressed, in bytes.
const maxFile = 32 << 20

// Index is the name of the page at the front.
const Index = "README.txt"

// Dump is an archive that is being collected. Its methods can be called at the same time.
type Dump struct {
	title string
	now   time.Time
	limit int64 // of the archive, in bytes; 0: none

	mu      sync.Mutex
	store   io.ReadWriter // the collected files, compressed
	written counter       // in it
	zip     *gzip.Writer
	tar     *tar.Writer
	names   []string
	missing []string
}

// New makes an empty archive of at most limit bytes, 0 for any, which is collected in store: a file, or memory where
// there is no folder to write to.
func New(title string, now time.Time, limit int64, store io.ReadWriter) *Dump {
	d := &Dump{title: title, now: now, limit: limit, store: store}
	d.zip = gzip.NewWriter(io.MultiWriter(store, &d.written))
	d.tar = tar.NewWriter(d.zip)
	return d
}

// Missing records what is not in the archive.
func (d *Dump) Missing(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missingLocked(name, err)
}

// MissingCount is how many parts are missing.
func (d *Dump) MissingCount() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.missing)
}

func (d *Dump) missingLocked(name string, err error) {
	why := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	d.missing = append(d.missing, printable(name+": "+why))
}

// AddJSON adds a value, or the reason why there is none.
func (d *Dump) AddJSON(name string, value any, err error) error {
	if err != nil {
		d.Missing(name, err)
		return nil
	}
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return d.Add(name, append(content, '\n'))
}

// Add adds a file. A file that exceeds the limits is missing instead. The error is of the store.
func (d *Dump) Add(name string, content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(content) > maxFile {
		d.missingLocked(name, fmt.Errorf("it has %d MiB, more than %d", len(content)>>20, maxFile>>20))
		return nil
	}
	if d.limit > 0 {
		if err := errors.Join(d.tar.Flush(), d.zip.Flush()); err != nil {
			return err
		}
		if left := d.limit - int64(d.written) - indexRoom; compressed(content) > left {
			d.missingLocked(name, fmt.Errorf("the archive would have more than %d MiB", d.limit>>20))
			return nil
		}
	}
	d.names = append(d.names, name)
	return write(d.tar, name, content, d.now)
}

// indexRoom is kept for the page at the front, and for headers.
const indexRoom = 128 << 10

// compressed is the size of content in the archive, in bytes.
func compressed(content []byte) int64 {
	var n counter
	z := gzip.NewWriter(&n)
	_, _ = z.Write(content)
	_ = z.Close()
	return int64(n)
}

type counter int64

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func write(t *tar.Writer, name string, content []byte, now time.Time) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: now, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err := t.Write(content)
	return err
}

// AddArchive adds the files of another archive below a folder. Its page says what is missing there.
func (d *Dump) AddArchive(folder string, archive []byte) error {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		d.Missing(folder, fmt.Errorf("its archive cannot be read: %w", err))
		return nil
	}
	// An archive of a node is hostile: a small one can be many files, or large ones. A sparse file takes no room in it.
	files, left := tar.NewReader(io.LimitReader(z, maxArchive)), int64(maxArchive)
	for range maxFiles {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(files, left+1))
			if left -= int64(len(content)); left < 0 {
				err = fmt.Errorf("its files have more than %d MiB", maxArchive>>20)
			}
		}
		if err != nil {
			d.Missing(folder, fmt.Errorf("its archive cannot be read: %w", err))
			return nil
		}
		if err := d.Add(folder+"/"+flat(header.Name), content); err != nil {
			return err
		}
	}
	d.Missing(folder, fmt.Errorf("its archive has more than %d files", maxFiles))
	return nil
}

// The bounds of the archive of a node: its files, and their size together in bytes.
const (
	maxFiles   = 100
	maxArchive = 64 << 20
)

// flat is a name without folders, so that it stays below its own.
func flat(name string) string {
	plain := strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", r) {
			return r
		}
		return '_'
	}, name)
	return cmp.Or(strings.ReplaceAll(plain[:min(len(plain), maxName)], "..", "_"), "_")
}

// maxName bounds a file's name, in letters.
const maxName = 100

// printable is a text without control characters.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// WriteTo writes the archive, and ends it: its page first, and then its files. Both are members of one gzip file.
func (d *Dump) WriteTo(w io.Writer) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(d.tar.Close(), d.zip.Close()); err != nil {
		return 0, err
	}
	var front bytes.Buffer
	z := gzip.NewWriter(&front)
	t := tar.NewWriter(z)
	if err := errors.Join(write(t, Index, d.indexLocked(), d.now), t.Flush(), z.Close()); err != nil {
		return 0, err
	}
	n, err := io.Copy(w, &front)
	if err != nil {
		return n, err
	}
	if file, ok := d.store.(io.Seeker); ok {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return n, err
		}
	}
	m, err := io.Copy(w, d.store)
	return n + m, err
}

func (d *Dump) indexLocked() []byte {
	var page bytes.Buffer
	fmt.Fprintf(&page, "%s, %s\n\nNot in this archive, on purpose: reservations of addresses with their tokens, HTTP requests,\nannotations, and the environment of programs.\n"+
		"Not whole: logs (the last 5,000 lines, 1 MiB), events (2,000), flows (the last 1,000 of a node).\n", d.title, d.now.UTC().Format(time.RFC3339))
	slices.Sort(d.missing)
	if len(d.missing) > 0 {
		fmt.Fprintf(&page, "\nMissing:\n")
		for _, text := range d.missing {
			fmt.Fprintf(&page, "  %s\n", text)
		}
	}
	fmt.Fprintf(&page, "\nFiles:\n")
	for _, name := range d.names {
		fmt.Fprintf(&page, "  %s\n", name)
	}
	return page.Bytes()
}
