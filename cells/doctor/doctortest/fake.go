// Package doctortest has a checker for tests of and around the doctor, and the test that every checker passes.
package doctortest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"porin.dev/porin/cells/doctor"
)

// Kind is the one kind that a [Checker] finds.
func Kind(name string) doctor.Kind {
	return doctor.Kind{Name: name, Meaning: "a thing is broken", Repair: "repair it"}
}

// Checker finds what is broken, and repairs it. It may be used concurrently.
type Checker struct {
	owner, kind string

	mu     sync.Mutex // guards the fields below
	broken map[string]broken
	calls  int
	fault  func(ctx context.Context) error
}

// broken is a thing that is.
type broken struct {
	endpoint string
	repair   func(ctx context.Context) error // nil when a person has to
}

// New makes a checker of a cell that finds nothing broken.
func New(owner, kind string) *Checker {
	return &Checker{owner: owner, kind: kind, broken: map[string]broken{}}
}

// Break breaks a thing of an attachment, or of none. repair is called first, and may fail; nil succeeds.
func (c *Checker) Break(subject, endpoint string, repair func(ctx context.Context) error) {
	if repair == nil {
		repair = func(context.Context) error { return nil }
	}
	c.put(subject, broken{endpoint, repair})
}

// BreakManual breaks a thing that a person has to repair.
func (c *Checker) BreakManual(subject, endpoint string) { c.put(subject, broken{endpoint, nil}) }

func (c *Checker) put(subject string, b broken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken[subject] = b
}

// Fix repairs a thing, as if another program had done so.
func (c *Checker) Fix(subject string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.broken, subject)
}

// Fail has every examination do this before it calls, which may fail or panic; nil is nothing.
func (c *Checker) Fail(fault func(ctx context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = fault
}

// Broken are the things that are, sorted.
func (c *Checker) Broken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.broken))
}

// Calls is the number of examinations so far.
func (c *Checker) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Owner is [doctor.Checker].
func (c *Checker) Owner() string { return c.owner }

// Kinds is [doctor.Checker].
func (c *Checker) Kinds() []doctor.Kind { return []doctor.Kind{Kind(c.kind)} }

// Examine is [doctor.Checker].
func (c *Checker) Examine(ctx context.Context, only string) (found []doctor.Finding, err error) {
	c.mu.Lock()
	fault := c.fault
	c.calls++
	c.mu.Unlock()
	if fault != nil {
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for subject, b := range c.broken {
		if only == "" || only == b.endpoint {
			found = append(found, c.finding(subject, b))
		}
	}
	return found, nil
}

func (c *Checker) finding(subject string, b broken) doctor.Finding {
	f := doctor.Finding{Kind: c.kind, Subject: subject, Endpoint: b.endpoint, Detail: subject + " is broken"}
	if b.repair != nil {
		f.Repair = func(ctx context.Context) error {
			if err := b.repair(ctx); err != nil {
				return err
			}
			c.Fix(subject)
			return nil
		}
	}
	return f
}
