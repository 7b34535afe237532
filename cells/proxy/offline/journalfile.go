package offline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/internal/flock"
)

// newSuffix ends the name of a file that is being written.
const newSuffix = ".new"

// PreparedJournal is what was read of a journal that another process may have open.
type PreparedJournal struct {
	path    string
	limits  Limits
	journal *Journal // without lock
	err     error
}

// PrepareJournal reads a journal that another process may have open and append to, so that [PreparedJournal.Open] has little to read: queries wait for that. An
// error is returned by Open.
func PrepareJournal(path string, limits Limits) *PreparedJournal {
	p := &PreparedJournal{path: path, limits: limits}
	p.read()
	return p
}

// Close gives up what was prepared. It does nothing after [PreparedJournal.Open] has returned a journal.
func (p *PreparedJournal) Close() {
	if p.journal != nil && p.journal.file != nil {
		_ = p.journal.file.Close()
	}
	p.journal = nil
}

// read reads all anew.
func (p *PreparedJournal) read() {
	p.Close()
	j := &Journal{path: p.path, limits: p.limits, records: map[recordKey]*record{}, endpoints: map[uint16]usage{}}
	p.journal = j
	if j.file, p.err = os.OpenFile(p.path, os.O_RDWR|os.O_APPEND, 0); p.err != nil {
		j.file = nil
		if errors.Is(p.err, fs.ErrNotExist) {
			p.err = nil
		}
		return
	}
	_, p.err = j.readOn()
}

// isCurrent reports whether the file that was read is the journal's: it may have been written anew since.
func (p *PreparedJournal) isCurrent() (bool, error) {
	if p.journal == nil || p.err != nil {
		return false, nil
	}
	now, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		return p.journal.file == nil, nil
	}
	if err != nil || p.journal.file == nil {
		return false, err
	}
	then, err := p.journal.file.Stat()
	return err == nil && os.SameFile(now, then) && now.Size() >= p.journal.size, err
}

// Open returns the journal, or begins one: it is for one process at a time. A file that is none of a journal is renamed. After an error it may be called again.
func (p *PreparedJournal) Open(log *slog.Logger) (_ *Journal, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the journal of names: %w", err)
		}
	}()
	lock, err := os.OpenFile(p.path+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Close())
		}
	}()
	if err := flock.Try(lock); err != nil {
		if errors.Is(err, flock.ErrLocked) {
			err = ErrLocked
		}
		return nil, err
	}
	current, err := p.isCurrent()
	if err != nil {
		return nil, err
	}
	if !current {
		p.read()
	}
	if p.err != nil {
		return nil, p.err
	}
	j := p.journal
	if err := j.begin(log); err != nil {
		p.Close()
		return nil, err
	}
	j.lock, p.journal = lock, nil
	return j, nil
}

// OpenJournal reads a journal, or begins one: see [PreparedJournal.Open].
func OpenJournal(path string, limits Limits, log *slog.Logger) (*Journal, error) {
	p := PrepareJournal(path, limits)
	defer p.Close()
	return p.Open(log)
}

// begin reads what was added since, and has the file be one that can be added to.
func (j *Journal) begin(log *slog.Logger) error {
	if j.file == nil {
		return j.rewrite()
	}
	tail, err := j.readOn()
	if err != nil {
		return err
	}
	switch known := j.headerRead; {
	case len(tail) > 0 && j.readLine(tail): // the line feed alone is missing
		j.size += int64(len(tail))
		return j.write([]byte{'\n'})
	case known && len(tail) > 0:
		return j.file.Truncate(j.size)
	case known:
		return nil
	case len(tail) > 0:
		log.Warn("the journal of names is not one that this version can read: it is kept under another name", "path", j.path+damagedSuffix)
		if err := os.Rename(j.path, j.path+damagedSuffix); err != nil {
			return err
		}
	}
	return j.rewrite()
}

// readOn reads what the file has after what was read. It returns what follows the last line that it could read: a part of a line, or, without a header, all.
func (j *Journal) readOn() (tail []byte, err error) {
	info, err := j.file.Stat()
	if err != nil {
		return nil, err
	}
	text := make([]byte, max(0, info.Size()-j.size))
	n, err := j.file.ReadAt(text, j.size)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	text = text[:n]
	for {
		end := bytes.IndexByte(text, '\n') + 1
		if end == 0 || !j.readLine(text[:end]) && !j.headerRead {
			return text, nil
		}
		text, j.size = text[end:], j.size+int64(end)
	}
}

// readLine adds what a line says, or reads the header. It reports whether it could.
func (j *Journal) readLine(text []byte) bool {
	if !j.headerRead {
		var h header
		j.headerRead = decode(text, &h) && h.Format == journalFormat && h.Version == journalVersion
		j.sequence = h.Sequence
		return j.headerRead
	}
	var l line
	if !decode(text, &l) {
		return false
	}
	j.sequence = max(j.sequence, l.Sequence)
	j.add(recordKey{l.Endpoint, l.Name}, l.Sequence, l.Addresses)
	return true
}

// Close ends the use of the journal. What it has stays.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
	return errors.Join(j.file.Close(), j.lock.Close())
}

// write appends lines, all or nothing.
func (j *Journal) write(text []byte) error {
	if j.endsInLine {
		text = append([]byte{'\n'}, text...)
	}
	n, err := j.file.Write(text)
	if err == nil {
		j.size += int64(n)
		j.endsInLine = false
		return nil
	}
	if n > 0 {
		if truncateErr := j.file.Truncate(j.size); truncateErr != nil {
			err = errors.Join(err, truncateErr)
			j.size += int64(n)
			j.endsInLine = true
		}
	}
	return err
}

// makeFileRoom has more bytes fit into the file. It is written anew only if that helps for a while.
func (j *Journal) makeFileRoom(more int64) error {
	if j.size+more <= j.limits.File {
		return nil
	}
	if int64(j.all.bytes)+more > j.limits.File-j.limits.File/8 {
		return ErrFull
	}
	if now := time.Now(); now.Before(j.rewritten.next) {
		return j.rewritten.err
	}
	err := j.rewrite()
	if err != nil {
		j.rewritten = attempt{err, time.Now().Add(rewritePause)}
	}
	return err
}

// rewrite replaces the file by one that has nothing twice. It expects the lock. The file is to outlive the process, and not the kernel: nothing waits for the disk.
func (j *Journal) rewrite() error {
	text, err := encode(header{journalFormat, journalVersion, j.sequence})
	if err != nil {
		return err
	}
	text = slices.Grow(text, j.all.bytes)
	for _, r := range j.sorted() {
		l := line{r.sequence, names.Lookup{Endpoint: r.endpoint, Name: r.name, Addresses: r.addresses}}
		if text, err = l.append(text); err != nil {
			return err
		}
	}
	if err := j.replace(text); err != nil {
		return fmt.Errorf("replace the journal of names: %w", err)
	}
	return nil
}

// replace has a new file take the place of the one that is open. With an error that one stays in use, if there is one.
func (j *Journal) replace(text []byte) (err error) {
	file, err := os.OpenFile(j.path+newSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.Write(text); err == nil {
		err = os.Rename(j.path+newSuffix, j.path)
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(j.path+newSuffix))
	}
	if j.file != nil {
		_ = j.file.Close() // nobody reads it any more
	}
	j.file, j.size, j.headerRead, j.endsInLine = file, int64(len(text)), true, false
	return nil
}
