package boottime_test

import (
	"testing"

	"porin.dev/porin/internal/boottime"
)

func TestNow(t *testing.T) {
	first := boottime.Now()
	if second := boottime.Now(); first <= 0 || second < first {
		t.Errorf("first %s, then %s", first, second)
	}
}
