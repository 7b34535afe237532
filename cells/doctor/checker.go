package doctor

import (
	"context"
	"time"

	"go.uber.org/fx"
)

// Kind is a sort of disagreement: every one has a name.
type Kind struct {
	Name    string // stable, for programs and metrics: "link-orphan"
	Meaning string // for people: "an interface bears Porin's mark and belongs to no endpoint"
	Repair  string // what [Finding].Repair does, or what a person has to do when there is none
	About   string // the subject that a caller can restrict an examination to, such as [Addresses]; "" for none
	// Note says that this is no disagreement, but worth knowing. It is not logged, counted or repaired.
	Note bool
	// Event says that the Kubernetes Node gets an Event about it.
	Event bool
}

// Addresses is the [Kind].About of kinds that have to do with who has which address.
const Addresses = "addresses"

// Finding is one disagreement.
type Finding struct {
	Kind     string // the name of one of the checker's kinds
	Subject  string // what it is about, with all that tells it from a later one: "por6nq2b4zvwkly, index 12"
	Endpoint string // the attachment as containerID:ifname, or ""
	Detail   string // what is, and what should be
	// Repair makes it right. It is called when two examinations in a row have found the same, and checks again before it
	// acts: much may have happened since. Nil when a person has to.
	Repair func(ctx context.Context) error
}

// Checker compares what its cell knows with what is. It is contributed by [Check].
type Checker interface {
	// Owner is the cell's name.
	Owner() string
	// Kinds are all that Examine may find.
	Kinds() []Kind
	// Examine finds the disagreements there are now. only restricts it to one attachment (containerID:ifname), and to
	// what is about it; "" is all. It changes nothing, is called by one caller at a time, and leaves out what is being
	// made or taken down at the moment. When ctx ends it returns soon, with an error or the whole answer.
	Examine(ctx context.Context, only string) ([]Finding, error)
}

// Check contributes the [Checker] that newChecker builds: doctor.Check(newChecker).
func Check(newChecker any) fx.Option {
	return fx.Provide(fx.Annotate(newChecker, fx.As(new(Checker)), fx.ResultTags(`group:"doctor.checkers"`)))
}

// Costly is a [Checker] whose examination is a burden for others, such as the cluster's store, which all nodes ask. The
// periodic examination calls it only now and then; a caller's examination always does. Its findings stay known in
// between.
type Costly interface {
	Checker
	// Every is the least time between two periodic examinations, and more than zero.
	Every() time.Duration
}
