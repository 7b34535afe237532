package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Raw reads a kind as the JSON that the API server has: fields that no Go type has are there, too.
type Raw[T any] struct {
	Client   rest.Interface // for JSON
	Resource string
	// Namespace, Fields and Labels are selectors; empty ones are all objects.
	Namespace, Fields, Labels string
	// Slim takes the needed part of an object. It reports unreadable objects itself: one object must not end the watch of
	// all.
	Slim func(metadata metav1.ObjectMeta, object []byte) T
}

var _ Source[struct{}] = Raw[struct{}]{}

func (s Raw[T]) request(options metav1.ListOptions) *rest.Request {
	options.FieldSelector, options.LabelSelector = joinSelectors(s.Fields, options.FieldSelector), s.Labels
	return s.Client.Get().NamespaceIfScoped(s.Namespace, s.Namespace != "").Resource(s.Resource).VersionedParams(&options, metav1.ParameterCodec).MaxRetries(0).SetHeader("Accept", "application/json")
}

// List implements [Source].
func (s Raw[T]) List(ctx context.Context, options metav1.ListOptions) (page Page[T], err error) {
	result := s.request(options).Do(ctx)
	if err := result.Error(); err != nil { // Raw's error lacks the server's reason
		return page, err
	}
	data, err := result.Raw()
	if err != nil {
		return page, err
	}
	var list struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return page, err
	}
	page.Version, page.Continue = list.Metadata.ResourceVersion, list.Metadata.Continue
	for _, item := range list.Items {
		object, err := s.object(item)
		if err != nil {
			return page, err
		}
		page.Objects = append(page.Objects, object)
	}
	return page, nil
}

func (s Raw[T]) object(data []byte) (o Object[T], err error) {
	metadata, err := metadataOf(data)
	if err != nil {
		return o, err
	}
	o.Key = Key{Namespace: metadata.Namespace, Name: metadata.Name}
	o.UID, o.Version, o.Value = metadata.UID, metadata.ResourceVersion, s.Slim(metadata, data)
	return o, nil
}

func metadataOf(data []byte) (metav1.ObjectMeta, error) {
	var object struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	err := json.Unmarshal(data, &object)
	return object.Metadata, err
}

// Watch implements [Source].
func (s Raw[T]) Watch(ctx context.Context, options metav1.ListOptions) (Stream[T], error) {
	options.Watch = true
	body, err := s.request(options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	return rawStream[T]{s, body, json.NewDecoder(body)}, nil
}

type rawStream[T any] struct {
	source Raw[T]
	body   io.ReadCloser
	events *json.Decoder
}

func (s rawStream[T]) Close() { _ = s.body.Close() }

func (s rawStream[T]) Next() (e Event[T], err error) {
	var event struct {
		Type   apiwatch.EventType `json:"type"`
		Object json.RawMessage    `json:"object"`
	}
	if err := s.events.Decode(&event); err != nil {
		return e, err
	}
	e.Type = event.Type
	switch event.Type {
	case apiwatch.Error:
		var status metav1.Status
		if err := json.Unmarshal(event.Object, &status); err != nil {
			return e, err
		}
		return e, &apierrors.StatusError{ErrStatus: status}
	case apiwatch.Bookmark:
		metadata, err := metadataOf(event.Object)
		e.Object.Version = metadata.ResourceVersion
		return e, err
	case apiwatch.Added, apiwatch.Modified, apiwatch.Deleted:
		e.Object, err = s.source.object(event.Object)
		return e, err
	}
	return e, fmt.Errorf("an event of unknown type %q", event.Type)
}
