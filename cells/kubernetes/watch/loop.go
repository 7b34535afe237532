package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Times of a loop.
const (
	pageSize   = 500
	firstPause = time.Second // after the first failure; it doubles up to maxPause
	maxPause   = 30 * time.Second
	// maxDelay is the longest pause that the server may ask for.
	maxDelay = 10 * time.Minute
	// minRelist is the least time until a whole list is read again, which finds what a watch has missed; the most is twice
	// as long.
	minRelist = 6 * time.Hour
	// silence is how long a watch may send nothing. The API server sends a bookmark about once a minute.
	silence = 10 * time.Minute
	// callTimeout bounds the read of one page.
	callTimeout = time.Minute
	// repeatTimeout is how long the server has to repeat a change: it has it in memory.
	repeatTimeout = 10 * time.Second
	// absence is how long the server has to say that it does not have a kind. After its start it has kinds of CRDs some
	// seconds later.
	absence = 30 * time.Second
)

// Reason is why a loop has opened its watch again, or listed again.
type Reason string

// The reasons.
const (
	Closed  Reason = "closed"  // the server has ended the watch, as it does each hour
	Failed  Reason = "error"   // of the connection, or an answer of the server
	Gone    Reason = "gone"    // the server does not know the version any more: 410
	SetBack Reason = "setback" // the server's version is lower than the last one
	Silent  Reason = "silent"
	Relist  Reason = "relist" // it is time for a whole list, or the server does not have the last change
)

// Reasons returns all.
func Reasons() []Reason { return []Reason{Closed, Failed, Gone, SetBack, Silent, Relist} }

var (
	errSetBack = errors.New("the API server's version is lower than the last one: it was restored from a backup")
	errSilent  = fmt.Errorf("no event and no bookmark for %s", silence)
	errRelist  = errors.New("a whole list is due")
	// errNotRepeated may also say that the change is too long ago.
	errNotRepeated = fmt.Errorf("%w: the API server does not have the last change that was read", errRelist)
)

// State is what is known of a loop.
type State struct {
	Kind     string
	Synced   bool      // a whole list was read
	Objects  int       // of the last list, and changes since
	Version  string    // of the last list, event or bookmark
	Since    time.Time // when the loop was last in touch with the server; zero before the first list
	Err      error     // why it is not now; nil while a watch is open
	Restarts map[Reason]int
}

// Loop follows one kind. Its methods may be called concurrently.
type Loop[T any] struct {
	kind     string
	source   Source[T]
	handler  Handler[T]
	log      *slog.Logger
	synced   chan struct{}
	absent   chan struct{}
	endPause chan struct{} // holds a token after EndPause

	// Of Run.
	version string     // of the last list, event or bookmark
	latest  latest     // of the objects
	relist  time.Time  // when a whole list is due
	missing time.Time  // since when the server does not have the kind
	resume  *Resume[T] // nil when it has been used, or cannot be

	mu    sync.Mutex // guards the fields below
	state State
	known map[Key]struct{}
}

// latest is the object that changed last. Where etcd was restored from an earlier backup, it has another version.
type latest struct {
	key     Key
	version string // "" before the first object
	deleted bool
}

// see keeps the object if its version is higher.
func (l *latest) see(key Key, version string, deleted bool) {
	if l.version == "" || !lower(version, l.version) {
		*l = latest{key, version, deleted}
	}
}

// selector selects the object by its fields.
func (l *latest) selector() string {
	switch {
	case l.version == "":
		return ""
	case l.key.Namespace == "":
		return "metadata.name=" + l.key.Name
	}
	return "metadata.name=" + l.key.Name + ",metadata.namespace=" + l.key.Namespace
}

// New returns a loop that [Loop.Run] begins. The kind is the resource's name, for logs and metrics.
func New[T any](kind string, source Source[T], handler Handler[T], log *slog.Logger) *Loop[T] {
	return &Loop[T]{
		kind: kind, source: source, handler: handler, log: log, synced: make(chan struct{}), absent: make(chan struct{}), endPause: make(chan struct{}, 1),
		state: State{Kind: kind, Restarts: map[Reason]int{}},
	}
}

// ResumeFrom has Run go on from where another loop was, if that is possible: then the handler gets the objects that the
// other one knew, and after them what has changed since. It is called before Run.
func (l *Loop[T]) ResumeFrom(r Resume[T]) {
	l.resume, l.version, l.latest, l.relist = &r, r.Mark.Version, r.Mark.latest(), r.Mark.Relist
}

// Mark is where the loop is after what the handler gets at the moment. It is for methods of the handler alone.
func (l *Loop[T]) Mark() Mark {
	return Mark{l.version, l.latest.key.Namespace, l.latest.key.Name, l.latest.version, l.latest.deleted, l.relist}
}

// Resumes reports whether the handler gets what another loop knew. It is for methods of the handler alone.
func (l *Loop[T]) Resumes() bool { return l.resume != nil }

// Synced is closed when a whole list has been given to the handler.
func (l *Loop[T]) Synced() <-chan struct{} { return l.synced }

// Absent is closed when the server has said for a while that it does not have the kind, as when a CRD has another
// version.
func (l *Loop[T]) Absent() <-chan struct{} { return l.absent }

// EndPause ends a pause of the loop, unless the server has asked for it. It does not block.
func (l *Loop[T]) EndPause() {
	select {
	case l.endPause <- struct{}{}:
	default:
	}
}

// State returns a copy.
func (l *Loop[T]) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	s.Objects, s.Restarts = len(l.known), maps.Clone(l.state.Restarts)
	return s
}

// Run follows the kind until the context ends, and returns nil.
func (l *Loop[T]) Run(ctx context.Context) error {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began, resumes := time.Now(), l.version != ""
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		reason := reasonOf(err)
		absent := !l.missing.IsZero() && apierrors.IsNotFound(err) // and was told already
		l.recordAbsence(err)
		if reason == Gone || reason == SetBack || reason == Relist {
			l.version, l.resume = "", nil
		}
		if time.Since(began) > 2*callTimeout {
			pause = 0 // a watch was open
		}
		wait := pause
		if resumes && l.version == "" {
			wait = min(wait, firstPause) // the loop has waited before the answer that it has to list
		}
		l.restart(ctx, reason, err, wait, absent)
		pause = min(max(2*pause, firstPause), maxPause)
	}
	return nil
}

// recordAbsence closes l.absent if the server does not have the kind.
func (l *Loop[T]) recordAbsence(err error) {
	switch {
	case !apierrors.IsNotFound(err):
		l.missing = time.Time{}
	case l.missing.IsZero():
		l.missing = time.Now()
	case time.Since(l.missing) >= absence:
		select {
		case <-l.absent:
		default:
			close(l.absent)
		}
	}
}

// follow lists the kind, if no version is known, and watches it until the watch ends.
func (l *Loop[T]) follow(ctx context.Context) (err error) {
	repeat := false
	switch {
	case l.version == "":
		err = l.list(ctx)
	case l.resume != nil:
		repeat, err = l.takeUp(ctx)
	default:
		repeat, err = l.compare(ctx)
	}
	if err != nil {
		return err
	}
	return l.watch(ctx, repeat)
}

// list gives the handler the whole kind. A list whose pages end in the middle, as when the server has compacted their
// version, begins again.
func (l *Loop[T]) list(ctx context.Context) error {
	l.latest, l.relist = latest{}, time.Now().Add(minRelist+rand.N(minRelist))
	whole := newWhole(l.handler)
	for next, more := "", true; more; {
		page, err := l.page(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if next != "" && apierrors.IsTooManyRequests(err) && ctx.Err() == nil { // to begin again would cost the server more
			l.restart(ctx, Failed, err, firstPause, false)
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", l.kind, err)
		}
		next, more = page.Continue, page.Continue != ""
		for _, object := range page.Objects {
			l.latest.see(object.Key, object.Version, false)
		}
		if !more {
			l.version = page.Version
		}
		whole.add(page.Objects, more)
	}
	l.recordWhole(whole.known)
	return nil
}

// takeUp gives the handler what another loop knew, if the server is as [Loop.compare] wants it.
func (l *Loop[T]) takeUp(ctx context.Context) (repeat bool, err error) {
	if until := time.Until(l.relist); until <= 0 || until > 2*minRelist { // later than a list says: the clock was ahead
		return false, errRelist
	}
	if err := l.resume.Check(ctx); err != nil {
		return false, err
	}
	if repeat, err = l.compare(ctx); err != nil {
		return false, err
	}
	whole := newWhole(l.handler)
	if err := l.resume.Pages(func(page []Object[T]) { whole.add(page, true) }); err != nil {
		return false, fmt.Errorf("%w: %w", errRelist, err)
	}
	whole.add(nil, false)
	l.resume = nil
	l.recordWhole(whole.known)
	return repeat, nil
}

// recordWhole notes that the handler has the whole kind.
func (l *Loop[T]) recordWhole(known map[Key]struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known, l.state.Version, l.state.Since, l.state.Err = known, l.version, time.Now(), nil
	if !l.state.Synced {
		l.state.Synced = true
		close(l.synced)
	}
}

// compare reads the object that changed last, and with it the kind's present version. It fails with errSetBack if the
// version is lower than the last one. If the object is not as it was, either it has changed since, or etcd was restored
// and has later versions by now: then the watch has to repeat the last change.
func (l *Loop[T]) compare(ctx context.Context) (repeat bool, err error) {
	page, err := l.page(ctx, metav1.ListOptions{Limit: 1, FieldSelector: l.latest.selector()})
	if err != nil {
		return false, fmt.Errorf("read the version of %s: %w", l.kind, err)
	}
	if lower(page.Version, l.version) {
		return false, errSetBack
	}
	there := len(page.Objects) > 0
	if l.latest.version == "" {
		if there {
			return false, fmt.Errorf("%w: there was no object, and now there is one", errRelist)
		}
		return false, nil
	}
	return there == l.latest.deleted || there && page.Objects[0].Version != l.latest.version, nil
}

func (l *Loop[T]) page(ctx context.Context, options metav1.ListOptions) (Page[T], error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return l.source.List(ctx, options)
}

// watch gives the handler each change from the version on, until the stream ends. With repeat, the server has to tell
// the last change once more before them, or watch fails with errRelist.
func (l *Loop[T]) watch(ctx context.Context, repeat bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relist := time.AfterFunc(time.Until(l.relist), func() { cancel(errRelist) })
	defer relist.Stop()
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	from := l.version
	if repeat {
		from = before(l.latest.version)
	}
	stream, err := l.source.Watch(ctx, metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watch %s: %w", l.kind, errors.Join(context.Cause(ctx), err))
	}
	defer stream.Close()
	if repeat {
		late := time.AfterFunc(repeatTimeout, func() { cancel(errNotRepeated) })
		err := l.repeated(stream)
		late.Stop()
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return fmt.Errorf("watch %s: %w", l.kind, err)
		}
	}
	l.mu.Lock()
	l.state.Since, l.state.Err = time.Now(), nil
	l.mu.Unlock()
	for {
		event, err := stream.Next()
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", l.kind, err)
		}
		quiet.Reset(silence)
		if repeat && !lower(l.version, event.Object.Version) {
			continue // the handler knows it
		}
		repeat = false
		if lower(event.Object.Version, l.version) {
			return errSetBack
		}
		l.version = event.Object.Version
		l.handle(event)
	}
}

// repeated reads the last change from a watch that begins before it.
func (l *Loop[T]) repeated(stream Stream[T]) error {
	event, err := stream.Next()
	if err != nil {
		return err
	}
	told := latest{event.Object.Key, event.Object.Version, event.Type == apiwatch.Deleted}
	if event.Type == apiwatch.Bookmark || told != l.latest {
		return errNotRepeated
	}
	return nil
}

func (l *Loop[T]) handle(event Event[T]) {
	switch event.Type {
	case apiwatch.Added, apiwatch.Modified:
		l.latest.see(event.Object.Key, event.Object.Version, false)
		l.handler.Update(event.Object)
	case apiwatch.Deleted:
		l.latest.see(event.Object.Key, event.Object.Version, true)
		l.handler.Delete(event.Object)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Version, l.state.Since = event.Object.Version, time.Now()
	switch event.Type {
	case apiwatch.Added, apiwatch.Modified:
		l.known[event.Object.Key] = struct{}{}
	case apiwatch.Deleted:
		delete(l.known, event.Object.Key)
	}
}

// restart counts why the loop or a page begins again, and waits: as long as the server asks for, up to maxDelay, or at
// random up to twice the pause, so that the agents of a cluster come back spread over a minute. An absent kind is not
// logged again. After an end that is no failure it does not wait the first time.
func (l *Loop[T]) restart(ctx context.Context, reason Reason, err error, pause time.Duration, absent bool) {
	l.mu.Lock()
	l.state.Restarts[reason]++
	if reason == Failed {
		l.state.Err = err
		pause = max(pause, firstPause)
	}
	l.mu.Unlock()
	var wait time.Duration
	if pause > 0 {
		wait = rand.N(2 * pause)
	}
	endPause := l.endPause
	select {
	case <-endPause: // of before
	default:
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait, endPause = max(wait, min(time.Duration(seconds)*time.Second, maxDelay)), nil
	}
	switch {
	case absent:
		l.log.Debug("the API server does not have the kind yet", "kind", l.kind, "retry", wait.Round(time.Millisecond))
	case reason == Failed:
		l.log.Warn("watch failed", "kind", l.kind, "error", err, "retry", wait.Round(time.Millisecond))
	default:
		l.log.Info("watch begins again", "kind", l.kind, "reason", reason)
	}
	select {
	case <-ctx.Done():
	case <-endPause:
	case <-time.After(wait):
	}
}

func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, io.EOF):
		return Closed
	case errors.Is(err, errSetBack):
		return SetBack
	case errors.Is(err, errRelist), errors.Is(err, ErrOther):
		return Relist
	case errors.Is(err, errSilent):
		return Silent
	case apierrors.IsGone(err), apierrors.IsResourceExpired(err):
		return Gone
	}
	return Failed
}

// before is the version before a version of an object.
func before(version string) string {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil || n < 2 {
		return version
	}
	return strconv.FormatUint(n-1, 10)
}

// lower reports whether version a is before b. Versions are numbers that can be compared within a kind. Any other text
// counts as lower.
func lower(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX != nil || errY != nil || x < y
}
