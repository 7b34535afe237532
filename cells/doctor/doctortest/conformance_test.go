package doctortest

import (
	"context"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/doctor"
)

func newBroken() *Checker {
	c := New("cell", "broken")
	c.Break("one", "c1:eth0", nil)
	c.Break("two", "c2:eth0", nil)
	c.BreakManual("three", "")
	return c
}

func TestCheckerPasses(t *testing.T) {
	TestChecker(t, func(*testing.T) doctor.Checker { return newBroken() })
}

// defective is a checker whose findings are not what they should be.
type defective struct {
	*Checker
	defect string
	calls  int
}

func (d *defective) Kinds() []doctor.Kind {
	if d.defect == "names a kind twice" {
		return append(d.Checker.Kinds(), d.Checker.Kinds()...)
	}
	return d.Checker.Kinds()
}

func (d *defective) Every() time.Duration {
	if d.defect == "has no interval" {
		return 0
	}
	return time.Hour
}

func (d *defective) Examine(ctx context.Context, only string) ([]doctor.Finding, error) {
	d.calls++
	switch d.defect {
	case "ignores the attachment":
		only = ""
	case "finds less every time":
		return (&defective{Checker: d.Checker}).first(ctx, only, 3-d.calls)
	case "finds less when the context has ended":
		if ctx.Err() != nil {
			return nil, nil
		}
	}
	found, err := d.Checker.Examine(ctx, only)
	slices.SortFunc(found, func(a, b doctor.Finding) int { return len(b.Subject) - len(a.Subject) })
	for i := range found {
		f := &found[i]
		switch subject, repair := f.Subject, f.Repair; {
		case d.defect == "finds an unknown kind":
			f.Kind = "another"
		case d.defect == "tells no detail":
			f.Detail = ""
		case repair == nil:
		case d.defect == "repairs nothing":
			f.Repair = func(context.Context) error { return nil }
		case d.defect == "breaks what is right":
			f.Repair = func(ctx context.Context) error {
				if !slices.Contains(d.Broken(), subject) {
					d.Break("another", "", nil)
				}
				return repair(ctx)
			}
		}
	}
	return found, err
}

// first returns n findings.
func (d *defective) first(ctx context.Context, only string, n int) ([]doctor.Finding, error) {
	found, err := d.Examine(ctx, only)
	return found[:min(max(n, 0), len(found))], err
}

func TestCheckerFindsDefects(t *testing.T) {
	for _, row := range []struct{ check, defect string }{
		{"kinds", "names a kind twice"},
		{"findings", "finds an unknown kind"},
		{"findings", "tells no detail"},
		{"examine again", "finds less every time"},
		{"one attachment", "ignores the attachment"},
		{"ended context", "finds less when the context has ended"},
		{"repair", "repairs nothing"},
		{"repair again", "breaks what is right"},
		{"interval", "has no interval"},
	} {
		i := slices.IndexFunc(checks, func(c check) bool { return c.name == row.check })
		if err := checks[i].run(t.Context(), &defective{Checker: newBroken()}); err != nil {
			t.Errorf("%s: without a defect: %v", row.check, err)
		}
		if err := checks[i].run(t.Context(), &defective{Checker: newBroken(), defect: row.defect}); err == nil {
			t.Errorf("%s passes a checker that %s", row.check, row.defect)
		}
	}
}

// TestCheckerNeedsFindings: a checker that finds nothing proves nothing.
func TestCheckerNeedsFindings(t *testing.T) {
	if err := checkRepair(t.Context(), New("cell", "broken")); err == nil {
		t.Error("it passes")
	}
}
