package offline

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// longName is one of the longest names that there are: less than 255 bytes in a message.
func longName(i int) string {
	label := strings.Repeat(`\001`, 60)
	return fmt.Sprintf("%s.%s.%s.%s.n%05d", label, label, label, label, i)
}

func one(i int, expires time.Time) map[netip.Addr]time.Time {
	return map[netip.Addr]time.Time{netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}): expires}
}

// fileInfo returns the file that is at the path now.
func (j *Journal) fileInfo(t *testing.T) os.FileInfo {
	t.Helper()
	info, err := os.Stat(j.path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// TestJournalLimitsExpired has three endpoints ask for the longest names that there are, each with an address whose time is over at once: they make room for others.
func TestJournalLimitsExpired(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "names"))
	over := time.Now().Add(-time.Hour)
	for i := range 3 * 5000 {
		if err := j.Add(uint16(1+i%3), longName(i), one(i, over), true); err != nil {
			t.Fatalf("name %d, while all that there are have expired: %v", i, err)
		}
	}
	if err := j.Add(4, "www.example.com", until(time.Now().Add(time.Minute), "192.0.2.1"), true); err != nil {
		t.Errorf("another endpoint, which has nothing yet: %v", err)
	}
}

// TestJournalLimitsTaken has four endpoints take all that they get, by addresses or by the length of names. Others get their part, and what is refused writes no file anew.
func TestJournalLimitsTaken(t *testing.T) {
	for what, name := range map[string]func(int) string{
		"addresses":  func(i int) string { return fmt.Sprintf("n%d.example.com", i) },
		"long names": longName,
	} {
		path := filepath.Join(t.TempDir(), "names")
		j := open(t, path)
		later := time.Now().Add(time.Hour)
		refused := 0
		var before os.FileInfo
		for i := range 4 * 5500 {
			err := j.Add(uint16(1+i%4), name(i), one(i, later), true)
			if err != nil && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			if err != nil {
				refused++
			}
			if refused == 100 && before == nil {
				before = j.fileInfo(t)
			}
		}
		if before == nil || !os.SameFile(before, j.fileInfo(t)) {
			t.Errorf("%s: %d were refused, and the file was written anew for them", what, refused)
		}
		for endpoint := range uint16(100) {
			for i := range 20 {
				name := fmt.Sprintf("service-%d.namespace-%d.eu-west-1.provider.example.com", i, endpoint)
				if err := j.Add(100+endpoint, name, one(i, later), true); err != nil {
					t.Fatalf("%s: name %d of endpoint %d: %v", what, i, endpoint, err)
				}
			}
		}
		want := j.all
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if again := open(t, path); again.all != want {
			t.Errorf("%s: %+v after a restart, want %+v", what, again.all, want)
		}
	}
}

// TestJournalLimitsUsual has room for as many addresses as the documentation says, when names are of a usual length and nobody has taken more than a pod may.
func TestJournalLimitsUsual(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "names"))
	for round := range 4 { // with 4 MiB of names and addresses, the file is written anew
		for i := range DefaultLimits().All {
			name := fmt.Sprintf("node-%05d.%s.storage.eu-west-1.provider.example.com", i, strings.Repeat("x", 50))
			if err := j.Add(uint16(1+i%8), name, one(i, time.Now().Add(time.Duration(1+round)*time.Hour)), true); err != nil {
				t.Fatalf("round %d, name %d: %v", round, i, err)
			}
		}
		size := j.fileInfo(t).Size()
		if size != j.size || size > j.limits.File {
			t.Errorf("the file has %d bytes, want %d, and %d at the most", size, j.size, j.limits.File)
		}
	}
	if err := j.rewrite(); err != nil || j.size > int64(j.all.bytes)+200 {
		t.Errorf("%d bytes, written anew, and the estimate is %d, %v", j.size, j.all.bytes, err)
	}
}
