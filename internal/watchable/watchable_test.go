package watchable_test

import (
	"testing"

	"porin.dev/porin/internal/watchable"
)

func TestValue(t *testing.T) {
	var v watchable.Value[int]
	v.Set(1)
	one, changed := v.Get()
	if _, again := v.Get(); one != 1 || again != changed {
		t.Errorf("value %d, want 1 and the same channel for everybody", one)
	}
	select {
	case <-changed:
		t.Error("nothing has changed")
	default:
	}
	v.Set(2)
	<-changed
	two, changed := v.Get()
	select {
	case <-changed:
		t.Error("nothing has changed since")
	default:
	}
	if two != 2 {
		t.Errorf("value %d, want 2", two)
	}
}
