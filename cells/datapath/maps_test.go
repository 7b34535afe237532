package datapath

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriteDespiteENOMEM(t *testing.T) {
	broken := errors.New("broken")
	rows := []struct {
		name   string
		fails  int // times with ENOMEM, and then
		result error
		calls  int // at least
		want   error
	}{
		{"the reserve is filled up", 3, nil, 4, nil},
		{"no memory", 1000, nil, 10, unix.ENOMEM},
		{"another error", 0, broken, 1, broken},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			calls := 0
			err := retryENOMEM(func() error {
				if calls++; calls <= row.fails {
					return fmt.Errorf("update: %w", unix.ENOMEM)
				}
				return row.result
			})
			if !errors.Is(err, row.want) || calls < row.calls || calls > 1+max(row.fails, row.calls) {
				t.Errorf("%v after %d calls, want %v after %d", err, calls, row.want, row.calls)
			}
		})
	}
}
