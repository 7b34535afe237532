package nl_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

func TestDump(t *testing.T) {
	all := []int{1, 2, 3}
	for name, test := range map[string]struct {
		interrupted int   // how many dumps are interrupted
		then        error // what the dump after them returns
		calls       int
		want        []int
		wantErr     error
	}{
		"whole at once":              {calls: 1, want: all},
		"whole after interruptions":  {interrupted: 19, calls: 20, want: all},
		"interrupted too often":      {interrupted: 1000, calls: 20, want: all[:1], wantErr: netlink.ErrDumpInterrupted},
		"refused":                    {then: unix.EPERM, calls: 1, wantErr: unix.EPERM},
		"refused after interruption": {interrupted: 1, then: unix.EPERM, calls: 2, wantErr: unix.EPERM},
		// The library's error says that it is EINTR. EINTR itself is no interrupted dump.
		"a signal": {then: unix.EINTR, calls: 1, wantErr: unix.EINTR},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			items, err := nl.Dump(func() ([]int, error) {
				calls++
				switch {
				case calls <= test.interrupted:
					return all[:1], fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
				case test.then != nil:
					return nil, test.then
				}
				return all, nil
			})
			if calls != test.calls {
				t.Errorf("the list was read %d times, want %d", calls, test.calls)
			}
			if !slices.Equal(items, test.want) {
				t.Errorf("items = %v, want %v", items, test.want)
			}
			if !errors.Is(err, test.wantErr) {
				t.Errorf("error = %v, want %v", err, test.wantErr)
			}
		})
	}
}
