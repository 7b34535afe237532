package doctortest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"porin.dev/porin/cells/doctor"
)

// TestChecker holds a checker to the promises of [doctor.Checker], and [doctor.Counter] and [doctor.Costly] when it is
// one. newChecker returns, for each test, a checker with findings; a part of them is repaired on request.
func TestChecker(t *testing.T, newChecker func(t *testing.T) doctor.Checker) {
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			if err := check.run(t.Context(), newChecker(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// check is one part of [TestChecker].
type check struct {
	name string
	run  func(ctx context.Context, c doctor.Checker) error
}

var checks = []check{
	{"kinds", checkKinds},
	{"findings", checkFindings},
	{"examine again", checkExamineAgain},
	{"one attachment", checkOneAttachment},
	{"ended context", checkEndedContext},
	{"repair", checkRepair},
	{"repair again", checkRepairAgain},
	{"interval", checkInterval},
}

// key is what makes two findings the same.
type key struct{ kind, subject string }

// examine returns the findings of an examination that must succeed.
func examine(ctx context.Context, c doctor.Checker, only string) (map[key]doctor.Finding, error) {
	list, err := c.Examine(ctx, only)
	if err != nil {
		return nil, fmt.Errorf("examine %q: %w", only, err)
	}
	found := map[key]doctor.Finding{}
	for _, f := range list {
		found[key{f.Kind, f.Subject}] = f
	}
	return found, nil
}

// examineBroken fails when there is nothing to test with.
func examineBroken(ctx context.Context, c doctor.Checker) (map[key]doctor.Finding, error) {
	found, err := examine(ctx, c, "")
	if err == nil && len(found) == 0 {
		err = errors.New("it finds nothing: the test needs a checker that does")
	}
	return found, err
}

// without are the findings of a that b does not have.
func without(a, b map[key]doctor.Finding) (errs []error) {
	for k, f := range a {
		if _, ok := b[k]; !ok {
			errs = append(errs, fmt.Errorf("%s, %s: %s", f.Kind, f.Subject, f.Detail))
		}
	}
	return errs
}

func checkKinds(_ context.Context, c doctor.Checker) error {
	var errs []error
	if c.Owner() == "" {
		errs = append(errs, errors.New("it has no owner"))
	}
	names := map[string]bool{}
	for _, k := range c.Kinds() {
		if k.Name == "" || k.Meaning == "" || k.Repair == "" || names[k.Name] {
			errs = append(errs, fmt.Errorf("kind %+v: want a name of its own, a meaning and a repair", k))
		}
		names[k.Name] = true
	}
	return errors.Join(errs...)
}

func checkFindings(ctx context.Context, c doctor.Checker) error {
	found, err := examineBroken(ctx, c)
	errs := []error{err}
	kinds := map[string]doctor.Kind{}
	for _, k := range c.Kinds() {
		kinds[k.Name] = k
	}
	for _, f := range found {
		kind, known := kinds[f.Kind]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("kind %q is not among the checker's", f.Kind))
		case kind.Note && f.Repair != nil:
			errs = append(errs, fmt.Errorf("note %q has a repair", f.Kind))
		}
		if f.Subject == "" || f.Detail == "" {
			errs = append(errs, fmt.Errorf("%+v: want a subject and a detail", f))
		}
	}
	return errors.Join(errs...)
}

func checkExamineAgain(ctx context.Context, c doctor.Checker) error {
	first, err := examineBroken(ctx, c)
	if err != nil {
		return err
	}
	second, err := examine(ctx, c, "")
	if changed := append(without(first, second), without(second, first)...); len(changed) > 0 {
		err = errors.Join(err, fmt.Errorf("two examinations without a change differ in: %w", errors.Join(changed...)))
	}
	return err
}

func checkOneAttachment(ctx context.Context, c doctor.Checker) error {
	all, err := examineBroken(ctx, c)
	errs := []error{err}
	attachments := map[string]bool{"container-of-nobody:eth0": true}
	for _, f := range all {
		if f.Endpoint != "" {
			attachments[f.Endpoint] = true
		}
	}
	for only := range attachments {
		found, err := examine(ctx, c, only)
		errs = append(errs, err)
		if extra := without(found, all); len(extra) > 0 {
			errs = append(errs, fmt.Errorf("only %s finds what all does not: %w", only, errors.Join(extra...)))
		}
		for _, f := range found {
			if f.Endpoint != only {
				errs = append(errs, fmt.Errorf("only %s finds %s of %q", only, f.Kind, f.Endpoint))
			}
		}
	}
	return errors.Join(errs...)
}

// checkEndedContext takes an error as well as an answer. One that waits for what does not come ends with the test's
// time.
func checkEndedContext(ctx context.Context, c doctor.Checker) error {
	all, err := examineBroken(ctx, c)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(ctx)
	end()
	if found, err := examine(ended, c, ""); err == nil {
		if changed := append(without(found, all), without(all, found)...); len(changed) > 0 {
			return fmt.Errorf("with a context that has ended it succeeds, and differs in: %w", errors.Join(changed...))
		}
	}
	after, err := examine(ctx, c, "")
	return errors.Join(append(without(all, after), err)...)
}

// repairAll runs each repair, and returns what the checker has found.
func repairAll(ctx context.Context, c doctor.Checker) (found map[key]doctor.Finding, err error) {
	found, err = examineBroken(ctx, c)
	errs, repairs := []error{err}, 0
	for _, f := range found {
		if f.Repair != nil {
			repairs++
			if err := f.Repair(ctx); err != nil {
				errs = append(errs, fmt.Errorf("repair of %s, %s: %w", f.Kind, f.Subject, err))
			}
		}
	}
	if repairs == 0 {
		errs = append(errs, errors.New("nothing has a repair: the test needs a finding that does"))
	}
	return found, errors.Join(errs...)
}

func checkRepair(ctx context.Context, c doctor.Checker) error {
	found, err := repairAll(ctx, c)
	if err != nil {
		return err
	}
	left, err := examine(ctx, c, "")
	errs := []error{err}
	for k, f := range left {
		if f.Repair != nil {
			errs = append(errs, fmt.Errorf("repaired, and still found: %s, %s: %s", f.Kind, f.Subject, f.Detail))
		}
		if _, was := found[k]; !was {
			errs = append(errs, fmt.Errorf("the repair has brought %s, %s: %s", f.Kind, f.Subject, f.Detail))
		}
	}
	return errors.Join(errs...)
}

// checkRepairAgain repairs what is right already: a repair comes later than the examination that found the fault.
// Whether that is an error is the checker's choice.
func checkRepairAgain(ctx context.Context, c doctor.Checker) error {
	found, err := repairAll(ctx, c)
	if err != nil {
		return err
	}
	before, err := examine(ctx, c, "")
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Repair != nil {
			_ = f.Repair(ctx)
		}
	}
	after, err := examine(ctx, c, "")
	if extra := without(after, before); len(extra) > 0 {
		err = errors.Join(err, fmt.Errorf("the repair of what was right has brought %w", errors.Join(extra...)))
	}
	return err
}

func checkInterval(_ context.Context, c doctor.Checker) error {
	if costly, ok := c.(doctor.Costly); ok && costly.Every() <= 0 {
		return fmt.Errorf("it is to run every %s", costly.Every())
	}
	return nil
}
