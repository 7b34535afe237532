package watch

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// Key names an object: namespace and name. The namespace is empty for kinds of the cluster.
type Key = types.NamespacedName

// Object is what is kept of an object of the API.
type Object[T any] struct {
	Key     Key
	UID     types.UID
	Version string // resourceVersion
	Value   T
}

// Page is a part of a list.
type Page[T any] struct {
	Objects  []Object[T]
	Version  string // of the whole list
	Continue string // empty on the last page
}

// Event is one change of a watch.
type Event[T any] struct {
	Type   apiwatch.EventType // Added, Modified, Deleted or Bookmark
	Object Object[T]          // of a Bookmark only the version
}

// Stream is a watch that is open. Next blocks until there is an event, and returns io.EOF after the last one. Close
// ends Next.
type Stream[T any] interface {
	Next() (Event[T], error)
	Close()
}

// Source reads one kind from the API server. Calls end with their context. Answers with an error are errors of
// k8s.io/apimachinery/pkg/api/errors.
type Source[T any] interface {
	// List combines the field selector with its own.
	List(ctx context.Context, options metav1.ListOptions) (Page[T], error)
	Watch(ctx context.Context, options metav1.ListOptions) (Stream[T], error)
}

// Handler gets what a loop has read.
type Handler[T any] interface {
	// Replace has every object of the kind. The handler owns the map.
	Replace(objects map[Key]Object[T])
	// Update has an object that is new, or has changed.
	Update(object Object[T])
	// Delete has the last state of an object.
	Delete(object Object[T])
}

// PageHandler is a [Handler] that gets a list page by page in the place of Replace, so the whole list is never in
// memory. A page with first restarts the list, even if the previous page announced more.
type PageHandler[T any] interface {
	Page(objects []Object[T], first, more bool)
}

// joinSelectors returns the selector of the objects that a and b select. An empty selector selects all objects.
func joinSelectors(a, b string) string { return strings.Trim(a+","+b, ",") }
