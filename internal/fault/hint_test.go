package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"porin.dev/porin/internal/fault"
)

func TestHintOf(t *testing.T) {
	full := fault.New(fault.Exhausted, "it is full")
	inner := fault.WithHint(full, "make room")
	for name, c := range map[string]struct {
		err  error
		hint string
		ok   bool
	}{
		"none":        {full, "", false},
		"nil":         {fault.WithHint(nil, "x"), "", false},
		"wrapped":     {fmt.Errorf("put: %w", inner), "make room", true},
		"outermost":   {fault.WithHint(fmt.Errorf("put: %w", inner), "take another one"), "take another one", true},
		"in the text": {fault.WithHint(inner, ""), "", true},
	} {
		if hint, ok := fault.HintOf(c.err); hint != c.hint || ok != c.ok {
			t.Errorf("%s: the hint is %q, %v, want %q, %v", name, hint, ok, c.hint, c.ok)
		}
	}
	if err := fmt.Errorf("put: %w", inner); err.Error() != "put: it is full" || fault.KindOf(err) != fault.Exhausted || !errors.Is(err, full) {
		t.Errorf("the error with a hint is %q, %s", err, fault.KindOf(err))
	}
}
