package watch

import (
	"context"
	"errors"
	"time"
)

// Mark says how far a loop has got. Another one can go on from there.
type Mark struct {
	Version string `json:"version"` // of the last list or event
	// The object that has changed last, if there is one.
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	ObjectVersion string `json:"objectVersion,omitempty"`
	Deleted       bool   `json:"deleted,omitempty"`

	Relist time.Time `json:"relist"` // when a whole list is due
}

func (m Mark) latest() latest {
	return latest{Key{Namespace: m.Namespace, Name: m.Name}, m.ObjectVersion, m.Deleted}
}

// Resume is what another loop knew at its mark.
type Resume[T any] struct {
	Mark Mark
	// Check is called before the objects are used. It returns [ErrOther] if they are of another API server's cluster; after
	// another error it is called again.
	Check func(ctx context.Context) error
	// Pages calls page with all objects, in pages.
	Pages func(page func([]Object[T])) error
}

// ErrOther says that a mark is of another cluster.
var ErrOther = errors.New("the mark is of another cluster")

// whole gives a handler all objects of a kind: page by page, or at once after the last page.
type whole[T any] struct {
	handler Handler[T]
	pages   PageHandler[T] // nil: at once
	objects map[Key]Object[T]
	known   map[Key]struct{}
	began   bool
}

func newWhole[T any](handler Handler[T]) *whole[T] {
	pages, _ := handler.(PageHandler[T])
	return &whole[T]{handler: handler, pages: pages, objects: map[Key]Object[T]{}, known: map[Key]struct{}{}}
}

func (w *whole[T]) add(page []Object[T], more bool) {
	for _, object := range page {
		w.known[object.Key] = struct{}{}
		if w.pages == nil {
			w.objects[object.Key] = object
		}
	}
	switch {
	case w.pages != nil:
		w.pages.Page(page, !w.began, more)
	case !more:
		w.handler.Replace(w.objects)
	}
	w.began = true
}
