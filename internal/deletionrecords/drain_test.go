package deletionrecords

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDrainSetsAside(t *testing.T) {
	for why, stays := range map[error]bool{
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOMEM: true, unix.EISDIR: false, unix.EIO: false, errNoContainer: false,
	} {
		path := filepath.Join(t.TempDir(), "1"+recordSuffix)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unread(path, &fs.PathError{Op: "open", Path: path, Err: why}); err == nil {
			t.Errorf("%v: nothing is reported", why)
		}
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%v: stays %v, want %v", why, err == nil, stays)
		}
	}
}
