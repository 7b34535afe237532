package offline

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/names"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t *testing.T, path string) *Journal {
	t.Helper()
	return openWith(t, path, DefaultLimits())
}

func openWith(t *testing.T, path string, limits Limits) *Journal {
	t.Helper()
	j, err := OpenJournal(path, limits, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func until(expires time.Time, addresses ...string) map[netip.Addr]time.Time {
	all := map[netip.Addr]time.Time{}
	for _, text := range addresses {
		all[netip.MustParseAddr(text)] = expires
	}
	return all
}

// texts are the lookups for people, without times.
func texts(lookups []names.Lookup) (all []string) {
	for _, l := range lookups {
		addresses := map[string]bool{}
		for addr := range l.Addresses {
			addresses[addr.String()] = true
		}
		all = append(all, fmt.Sprint(l.Endpoint, " ", l.Name, " ", addresses))
	}
	return all
}

func (j *Journal) want(t *testing.T, when string, want ...string) {
	t.Helper()
	got, _ := j.List()
	if diff := cmp.Diff(want, texts(got)); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

func add(t *testing.T, j *Journal, endpoint uint16, name string, addresses ...string) {
	t.Helper()
	if err := j.Add(endpoint, name, until(time.Now().Add(time.Hour), addresses...), true); err != nil {
		t.Fatal(err)
	}
}

// TestJournal adds, reads after a restart, and removes what an agent has taken, but not what came meanwhile.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	add(t, j, 2, "b.example", "192.0.2.2", "2001:db8::2")
	add(t, j, 1, "a.example", "192.0.2.3")
	want := []string{"2 b.example map[192.0.2.2:true 2001:db8::2:true]", "1 a.example map[192.0.2.1:true 192.0.2.3:true]"}
	j.want(t, "as it was added", want...)
	if _, err := OpenJournal(path, DefaultLimits(), quiet); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice: %v, want %v", err, ErrLocked)
	}
	before, _ := j.List()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	j.want(t, "after a restart", want...)
	lookups, mark := j.List()
	for i, l := range lookups {
		for addr, expires := range l.Addresses {
			if !expires.Equal(before[i].Addresses[addr]) {
				t.Errorf("%s expires at %s, before the restart at %s", addr, expires, before[i].Addresses[addr])
			}
		}
	}
	add(t, j, 2, "b.example", "192.0.2.4")
	if err := j.Remove(mark); err != nil {
		t.Fatal(err)
	}
	left := "2 b.example map[192.0.2.2:true 192.0.2.4:true 2001:db8::2:true]"
	j.want(t, "when the agent has taken a part", left)
	if err := j.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	j.want(t, "after one more restart", left)
	_, mark = j.List()
	if err := j.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	add(t, j, 3, "c.example", "192.0.2.5")
	if err := j.Remove(mark); err != nil {
		t.Fatal(err)
	}
	j.want(t, "with a mark of before", "3 c.example map[192.0.2.5:true]")
}

// TestJournalRemoveLate has an agent import what one process has learned, and say so when the next one has the journal already.
func TestJournalRemoveLate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	previous := open(t, path)
	add(t, previous, 1, "a.example", "192.0.2.1")
	_, mark := previous.List()
	if err := previous.Close(); err != nil {
		t.Fatal(err)
	}
	next := open(t, path)
	add(t, next, 2, "b.example", "192.0.2.2")
	if err := previous.Remove(mark); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v, want %v", err, os.ErrClosed)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path).want(t, "what the next process has learned", "1 a.example map[192.0.2.1:true]", "2 b.example map[192.0.2.2:true]")
}

// TestJournalKilled: of a file that ends at any byte, each complete record is read, and more can be added.
func TestJournalKilled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "journal")
	j := open(t, path)
	var sizes []int64
	for i := range 4 {
		sizes = append(sizes, j.size)
		add(t, j, uint16(i), fmt.Sprintf("n%d.example", i), fmt.Sprintf("192.0.2.%d", i))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := sizes[0]; n <= int64(len(text)); n++ {
		cut := filepath.Join(dir, fmt.Sprint("cut", n))
		if err := os.WriteFile(cut, text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cut+".new", text[:n/2], 0o600); err != nil { // killed while it was replaced, too
			t.Fatal(err)
		}
		complete := 0
		for _, end := range append(sizes[1:], int64(len(text))) {
			if end-1 <= n { // the line feed alone may be missing
				complete++
			}
		}
		again := openWith(t, cut, DefaultLimits())
		if got, _ := again.List(); len(got) != complete {
			t.Fatalf("of %d bytes %d records are read, want %d", n, len(got), complete)
		}
		add(t, again, 9, "more.example", "192.0.2.9")
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		again = openWith(t, cut, DefaultLimits())
		if got, _ := again.List(); len(got) != complete+1 {
			t.Fatalf("of %d bytes and one record %d are read, want %d", n, len(got), complete+1)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJournalDamaged: a flipped byte loses one record, and a file that is no journal is kept under another name.
func TestJournalDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	add(t, j, 2, "b.example", "192.0.2.2")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte("a.example"), []byte("x.example"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	j.want(t, "with a damaged record", "2 b.example map[192.0.2.2:true]")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	j = open(t, path)
	j.want(t, "with another file")
	if text, err := os.ReadFile(path + damagedSuffix); string(text) != "something else" {
		t.Errorf("the other file is %q, %v", text, err)
	}
}

// TestJournalAgain: a name that is asked for all the time is written twice a minute at most, and what the agent gets is never shorter than what the answer said.
func TestJournalAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		j := open(t, path)
		first := j.size
		add(t, j, 1, "a.example", "192.0.2.1")
		record := j.size - first
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			add(t, j, 1, "a.example", "192.0.2.1")
		}
		if records := (j.size - first) / record; records > 3 {
			t.Errorf("%d records in a minute", records)
		}
		got, _ := j.List()
		if left := time.Until(got[0].Addresses[netip.MustParseAddr("192.0.2.1")]); left < time.Hour || left > time.Hour+slack {
			t.Errorf("it is valid for %s, want an hour and no more than %s", left, slack)
		}
	})
}

// TestJournalLimits: too many addresses of a name, an endpoint or in all are refused as a whole, unless others have expired. The file does not grow above its limit.
func TestJournalLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	synctest.Test(t, func(t *testing.T) {
		j := openWith(t, path, Limits{Name: 4, Endpoint: 6, All: 10, File: 8 << 10})
		next := netip.MustParseAddr("192.0.2.0")
		try := func(endpoint uint16, name string, n int, needed bool) error {
			addresses := map[netip.Addr]time.Time{}
			for range n {
				next = next.Next()
				addresses[next] = time.Now().Add(time.Minute)
			}
			return j.Add(endpoint, name, addresses, needed)
		}
		for i, row := range []struct {
			endpoint uint16
			name     string
			n        int
			needed   bool
			want     error
		}{
			{1, "a.example", 5, true, ErrFull}, {1, "a.example", 3, false, ErrFull}, {1, "a.example", 2, false, nil}, {1, "a.example", 2, true, nil},
			{1, "a.example", 1, true, ErrFull}, {1, "b.example", 3, true, ErrFull}, {1, "b.example", 2, true, nil}, {1, "c.example", 1, true, ErrFull},
			{2, "a.example", 1, false, ErrFull}, {2, "a.example", 4, true, nil}, {3, "a.example", 1, true, ErrFull},
		} {
			if err := try(row.endpoint, row.name, row.n, row.needed); !errors.Is(err, row.want) {
				t.Errorf("row %d: %v, want %v", i, err, row.want)
			}
		}
		time.Sleep(2 * time.Minute)
		if err := try(3, "a.example", 4, true); err != nil {
			t.Errorf("when others have expired: %v", err)
		}
		j.want(t, "when others have expired", "3 a.example map[192.0.2.26:true 192.0.2.27:true 192.0.2.28:true 192.0.2.29:true]")
		for range 1000 {
			time.Sleep(time.Minute + 2*slack)
			if err := try(3, "a.example", 4, true); err != nil || j.size > j.limits.File {
				t.Fatalf("%v, with %d bytes", err, j.size)
			}
		}
		j.limits.File = 512
		if err := try(4, strings.Repeat("long-", 100), 1, true); !errors.Is(err, ErrFull) {
			t.Errorf("without room in the file: %v, want %v", err, ErrFull)
		}
	})
}

// TestJournalWriteFails leaves the file and what is known as they were.
func TestJournalWriteFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j := open(t, path)
	add(t, j, 1, "a.example", "192.0.2.1")
	writable := j.file
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	j.file = readOnly
	if err := j.Add(1, "b.example", until(time.Now(), "192.0.2.2"), true); err == nil {
		t.Error("written to a file that is read-only")
	}
	j.file = writable
	j.want(t, "when it could not be written", "1 a.example map[192.0.2.1:true]")
	add(t, j, 2, "c.example", "192.0.2.3")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path).want(t, "after a restart", "1 a.example map[192.0.2.1:true]", "2 c.example map[192.0.2.3:true]")
}
