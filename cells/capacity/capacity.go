package capacity

import "go.uber.org/fx"

// Resource is something that an ADD needs and that can run out.
type Resource struct {
	Name     string // stable, for programs and metrics: "endpoint-numbers"
	Used     int64
	Capacity int64 // 0: it is there or not, and is not counted
	// Reserve is how much must be left: with less the resource counts as not available. At least 1 where it is counted.
	Reserve int64
	// Err is why the next ADD would fail, whatever the numbers say.
	Err error
	// Vital says that Err prevents every ADD for a lasting reason: neither time nor the end of a pod helps.
	Vital bool
}

// Source tells of the resources that its cell gives to an ADD. It is contributed by [Provide].
type Source interface {
	// Resources is called for each STATUS and by a loop, concurrently, and must be fast: a small write to a local file at
	// most. The names stay the same while the agent runs.
	Resources() []Resource
}

// Provide contributes the [Source] that newSource builds: capacity.Provide(newSource).
func Provide(newSource any) fx.Option {
	return fx.Provide(fx.Annotate(newSource, fx.As(new(Source)), fx.ResultTags(`group:"capacity.sources"`)))
}
