package endpointmanager

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestResourcesStateDirWithoutLimit(t *testing.T) {
	const block = 4096
	rows := []struct {
		name string
		fs   unix.Statfs_t
		full bool
	}{
		{"plenty is left", unix.Statfs_t{Bsize: block, Blocks: 1 << 20, Bavail: 1 << 19}, false},
		{"just enough is left", unix.Statfs_t{Bsize: block, Blocks: 1 << 20, Bavail: leastFree / block}, false},
		{"too little is left", unix.Statfs_t{Bsize: block, Blocks: 1 << 20, Bavail: leastFree/block - 1}, true},
		{"nothing is left", unix.Statfs_t{Bsize: block, Blocks: 1 << 20}, true},
		{"a tmpfs of size=0, or a ramfs", unix.Statfs_t{Bsize: block}, false},
	}
	for _, row := range rows {
		if err := checkRoom("/run/porin", row.fs); (err != nil) != row.full {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}
