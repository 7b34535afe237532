package boottime_test

import (
	"testing"

	"porin.dev/porin/internal/boottime"
)

func TestTheClockRunsFromTheBootOn(t *testing.T) {
	first := boottime.Now()
	if second := boottime.Now(); first <= 0 || second < first {
		t.Errorf("first %s, then %s", first, second)
	}
}
