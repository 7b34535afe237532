package capacity

import (
	"fmt"

	"go.uber.org/fx"
)

// Resource is something that an ADD needs and that can run out.
type Resource struct {
	Name     string // stable, for programs and metrics: "endpoint-numbers"
	Used     int64
	Capacity int64 // 0: it is there or not, and is not counted
	// Quarantined was released a short while ago: it is not in use, and not there for the next ADD.
	Quarantined int64
	// Reserve is how much must be left: with less the resource counts as not available. At least 1 where it is counted.
	Reserve int64
	// Err is why the next ADD would fail, whatever the numbers say.
	Err error
	// Vital says that Err prevents every ADD for a lasting reason: neither time nor the end of a pod helps.
	Vital bool
	// Refilled says that the node gets more of it by itself: that none is left is no lack.
	Refilled bool
	// Finding is the kind of the doctor's finding that reports Err; "" when only this cell's note does.
	Finding string
}

// Addresses is the name of the resource that is a family ("ipv4", "ipv6") of a pool's addresses.
func Addresses(pool, family string) string { return "addresses/" + pool + "/" + family }

// Source knows the resources that its cell gives to an ADD. It is contributed by [Provide].
type Source interface {
	// Resources is called for each STATUS and by a loop, concurrently, and must be fast: a small write to a local file at
	// most. The names stay the same while the agent runs. Two sources may know one resource, if only one has its numbers.
	Resources() []Resource
}

// Provide contributes the [Source] that newSource builds: capacity.Provide(newSource).
func Provide(newSource any) fx.Option {
	return fx.Provide(fx.Annotate(newSource, fx.As(new(Source)), fx.ResultTags(`group:"capacity.sources"`)))
}

// merge adds what another source knows of the resource.
func (r Resource) merge(other Resource) Resource {
	if r.Capacity == 0 {
		r.Used, r.Quarantined, r.Capacity, r.Reserve = other.Used, other.Quarantined, other.Capacity, other.Reserve
	}
	if r.Err == nil {
		r.Err, r.Finding, r.Vital = other.Err, other.Finding, other.Vital
	}
	r.Refilled = r.Refilled || other.Refilled
	return r
}

// taken is how much the next ADD cannot have.
func (r Resource) taken() int64 { return r.Used + r.Quarantined }

// shortage says why the resource is not available; "" when it is.
func (r Resource) shortage() string {
	left := max(r.Capacity-r.taken(), 0)
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Refilled || r.Capacity <= 0 || left >= r.Reserve:
		return ""
	case r.Reserve > 1:
		return fmt.Sprintf("%d of %d left, and %d are held back", left, r.Capacity, r.Reserve)
	}
	return fmt.Sprintf("%d of %d left", left, r.Capacity)
}
