package watch

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Typed reads a kind whose Go type the client's scheme has.
type Typed[T any] struct {
	client   rest.Interface
	resource string
	selector string
	metadata bool           // alone
	list     runtime.Object // empty
	slim     func(runtime.Object) (T, error)
}

var _ Source[struct{}] = Typed[struct{}]{}

// Objects reads objects of the Go type O. The selector is one of fields; "" is every object. The list is an empty one
// of the kind. slim takes the needed part of an object. It must not keep the object: strings of one page share its
// memory.
func Objects[O runtime.Object, T any](client rest.Interface, resource, selector string, list runtime.Object, slim func(O) T) Typed[T] {
	return Typed[T]{client: client, resource: resource, selector: selector, list: list, slim: func(object runtime.Object) (none T, err error) {
		o, ok := object.(O)
		if !ok {
			return none, fmt.Errorf("the server sent %T, want %T", object, o)
		}
		return slim(o), nil
	}}
}

// Metadata is Objects that asks for the metadata of objects alone.
func Metadata[T any](client rest.Interface, resource, selector string, slim func(*metav1.PartialObjectMetadata) T) Typed[T] {
	source := Objects(client, resource, selector, &metav1.PartialObjectMetadataList{}, slim)
	source.metadata = true
	return source
}

// request is a list or a watch. The loop decides when a call is made again.
func (s Typed[T]) request(options metav1.ListOptions, metadata string) *rest.Request {
	options.FieldSelector = joinSelectors(s.selector, options.FieldSelector)
	r := s.client.Get().Resource(s.resource).VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0)
	if s.metadata {
		r.SetHeader("Accept", "application/vnd.kubernetes.protobuf;g=meta.k8s.io;v=v1;as="+metadata)
	}
	return r
}

// List implements [Source].
func (s Typed[T]) List(ctx context.Context, options metav1.ListOptions) (page Page[T], err error) {
	list := s.list.DeepCopyObject()
	if err := s.request(options, "PartialObjectMetadataList").Do(ctx).Into(list); err != nil {
		return page, err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return page, err
	}
	page.Version, page.Continue = about.GetResourceVersion(), about.GetContinue()
	return page, meta.EachListItem(list, func(item runtime.Object) error {
		object, err := s.object(item)
		page.Objects = append(page.Objects, object)
		return err
	})
}

func (s Typed[T]) object(item runtime.Object) (o Object[T], err error) {
	about, err := meta.Accessor(item)
	if err != nil {
		return o, err
	}
	o.Key = Key{Namespace: about.GetNamespace(), Name: about.GetName()}
	o.UID, o.Version = about.GetUID(), about.GetResourceVersion()
	if o.Value, err = s.slim(item); err != nil {
		return o, fmt.Errorf("%s %s: %w", s.resource, o.Key, err)
	}
	return o, nil
}

// Watch implements [Source].
func (s Typed[T]) Watch(ctx context.Context, options metav1.ListOptions) (Stream[T], error) {
	options.Watch = true
	stream, err := s.request(options, "PartialObjectMetadata").Watch(ctx)
	if err != nil {
		return nil, err
	}
	return typedStream[T]{s, stream}, nil
}

type typedStream[T any] struct {
	source Typed[T]
	apiwatch.Interface
}

func (s typedStream[T]) Close() { s.Stop() }

func (s typedStream[T]) Next() (e Event[T], err error) {
	event, open := <-s.ResultChan()
	if !open {
		return e, io.EOF
	}
	e.Type = event.Type
	switch event.Type {
	case apiwatch.Error:
		return e, apierrors.FromObject(event.Object)
	case apiwatch.Bookmark:
		about, err := meta.Accessor(event.Object)
		if err != nil {
			return e, err
		}
		e.Object.Version = about.GetResourceVersion()
		return e, nil
	}
	e.Object, err = s.source.object(event.Object)
	return e, err
}
