package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/watch"
)

// Version is the group and version of the kinds.
var Version = schema.GroupVersion{Group: "porin.dev", Version: "v1alpha1"}

// Definitions are the names of the CustomResourceDefinitions.
func Definitions() (names []string) {
	for _, kind := range []string{"blocks", "clusters", "endpointgroups", "networks", "nodes", "pools", "sessions"} {
		names = append(names, "porin"+kind+"."+Version.Group)
	}
	return names
}

const (
	// callTimeout bounds one request that is not a watch.
	callTimeout = 5 * time.Second
	// pageSize is how many records one answer has.
	pageSize = 500
)

// kind is one kind of records. It implements the interfaces of package cluster, but for Get.
type kind[T any] struct {
	cluster.Kind[T]

	client rest.Interface
	log    *slog.Logger
	name   string // of the kind, such as PorinNode; the resource is its plural in small letters
	byPage bool   // watches tell lists page by page: no process should have all of them in memory
}

// object is a record as the API server has it.
type object[T any] struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     T                 `json:"spec"`
}

// record is what was read. With an error that is ErrUnreadable the item is what the name of the record says.
type record[T any] struct {
	item T
	err  error
}

func (k kind[T]) resource() string { return strings.ToLower(k.name) + "s" }

// read decodes an object of the kind.
func (k kind[T]) read(metadata metav1.ObjectMeta, data []byte) record[T] {
	var o object[T]
	err := json.Unmarshal(data, &o)
	item := o.Spec
	if err == nil {
		if said := k.RecordName(item); said != metadata.Name {
			err = fmt.Errorf("it says that it is %.80q", said)
		}
	}
	if err == nil {
		err = k.Check(item)
	}
	if err != nil {
		return record[T]{k.Named(metadata.Name), fmt.Errorf("%w: %s %s: %w", cluster.ErrUnreadable, k.name, metadata.Name, err)}
	}
	*k.Version(&item), *k.Deleting(&item) = cluster.Version(metadata.ResourceVersion), metadata.DeletionTimestamp != nil
	return record[T]{item: item}
}

// readOne decodes the answer to a request for one object.
func (k kind[T]) readOne(data []byte) (item T, uid types.UID, err error) {
	var o object[json.RawMessage]
	if err := json.Unmarshal(data, &o); err != nil {
		return item, "", err
	}
	r := k.read(o.Metadata, data)
	return r.item, o.Metadata.UID, r.err
}

func (k kind[T]) write(ctx context.Context, request *rest.Request, item T) (none T, err error) {
	body, err := json.Marshal(map[string]any{
		"apiVersion": Version.String(), "kind": k.name, "metadata": map[string]string{"name": k.RecordName(item), "resourceVersion": string(*k.Version(&item))}, "spec": item,
	})
	if err != nil {
		return none, err
	}
	// Strict: a CRD that is older than the record would lose fields without a word.
	data, err := call(ctx, request.Resource(k.resource()).Param("fieldValidation", "Strict").Body(body))
	if err != nil {
		return none, err
	}
	item, _, err = k.readOne(data)
	return item, err
}

func (k kind[T]) Create(ctx context.Context, item T) (T, error) {
	*k.Version(&item) = ""
	item, err := k.write(ctx, k.client.Post(), item)
	return item, k.translate("create", err)
}

func (k kind[T]) Update(ctx context.Context, item T) (none T, err error) {
	if *k.Version(&item) == "" { // the API server would take it for no condition
		return none, fmt.Errorf("update %s %s without a version: %w", k.name, k.RecordName(item), cluster.ErrConflict)
	}
	item, err = k.write(ctx, k.client.Put().Name(k.RecordName(item)), item)
	if apierrors.IsNotFound(err) {
		return none, fmt.Errorf("update: %w: %w", cluster.ErrConflict, err)
	}
	return item, k.translate("update", err)
}

// Put creates an item without a version, and else updates it.
func (k kind[T]) Put(ctx context.Context, item T) (T, error) {
	if *k.Version(&item) == "" {
		return k.Create(ctx, item)
	}
	return k.Update(ctx, item)
}

func (k kind[T]) get(ctx context.Context, name string) (item T, uid types.UID, err error) {
	data, err := call(ctx, k.client.Get().Resource(k.resource()).Name(name))
	if err != nil {
		return item, "", k.translate("read", err)
	}
	return k.readOne(data)
}

// remove deletes the record if the conditions hold. It succeeds when there is no record.
func (k kind[T]) remove(ctx context.Context, name string, conditions metav1.Preconditions) error {
	body, err := json.Marshal(metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &conditions})
	if err != nil {
		return err
	}
	if _, err = call(ctx, k.client.Delete().Resource(k.resource()).Name(name).Body(body)); apierrors.IsNotFound(err) {
		return nil
	}
	return k.translate("delete", err)
}

func (k kind[T]) Delete(ctx context.Context, item T) error {
	version := string(*k.Version(&item))
	return k.remove(ctx, k.RecordName(item), metav1.Preconditions{ResourceVersion: &version})
}

func (k kind[T]) All(ctx context.Context) iter.Seq2[T, error] { return k.all(ctx, "") }

func (k kind[T]) Watch(ctx context.Context) (<-chan cluster.Change[T], error) {
	return k.follow(ctx, "", cluster.Resume[T]{})
}

// source reads the records that the selector of fields matches.
func (k kind[T]) source(fields string) watch.Raw[record[T]] {
	return watch.Raw[record[T]]{Client: k.client, Resource: k.resource(), Fields: fields, Slim: k.read}
}

// all lists the records that the selector of fields matches. It tells a record that cannot be read as an error, and
// goes on.
func (k kind[T]) all(ctx context.Context, fields string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		again := false // the last page has expired
		for next, more := "", true; more; {
			page, err := k.page(ctx, fields, next)
			if expired, _ := errors.AsType[*apierrors.StatusError](err); expired != nil && expired.ErrStatus.Continue != "" && !again {
				next, again = expired.ErrStatus.Continue, true // the rest of the list is of a later time
				continue
			}
			again = false
			if err != nil {
				var none T
				yield(none, k.translate("list", err))
				return
			}
			for _, o := range page.Objects {
				if !yield(o.Value.item, o.Value.err) {
					return
				}
			}
			next = page.Continue
			more = next != ""
		}
	}
}

func (k kind[T]) page(ctx context.Context, fields, next string) (watch.Page[record[T]], error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.source(fields).List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
}

// call makes one request.
func call(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result := request.MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // Raw's error lacks the server's reason
		return nil, err
	}
	return result.Raw()
}

// translate gives the errors of the API server the names that package cluster has for them.
func (k kind[T]) translate(verb string, err error) error {
	name := cluster.ErrUnavailable
	status, _ := errors.AsType[*apierrors.StatusError](err)
	switch {
	case err == nil || errors.Is(err, cluster.ErrUnreadable):
		return err
	case apierrors.IsAlreadyExists(err):
		name = cluster.ErrExists
	case apierrors.IsNotFound(err) && verb == "read":
		name = cluster.ErrNotFound
	case apierrors.IsConflict(err):
		name = cluster.ErrConflict
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s a %s: the API server does not have the kind: apply Porin's CRDs", name, verb, k.name)
	case status != nil && status.ErrStatus.Code < 500 && !apierrors.IsTooManyRequests(err):
		return fmt.Errorf("%s a %s: %w", verb, k.name, err)
	}
	return fmt.Errorf("%s a %s: %w: %w", verb, k.name, name, err)
}
