package kubernetestest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// maxBody is the real server's bound of a request.
const maxBody = 3 << 20

// fields decodes a body, in protobuf or JSON.
func (s *Server) fields(r *http.Request) (map[string]any, error) {
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	if r.Header.Get("Content-Type") == protobuf {
		typed, _, err := s.codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			return nil, err
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	}
	var fields map[string]any
	return fields, json.Unmarshal(data, &fields)
}

// write creates or updates an object.
func (s *Server) write(w http.ResponseWriter, r *http.Request, t target, verb string) {
	fields, err := s.fields(r)
	if err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	o, code, reason, err := s.put(t, fields, verb == "create")
	if err != nil {
		s.fail(w, code, reason, err.Error())
		return
	}
	s.answer(w, r, code, o)
}

// put is write without HTTP.
func (s *Server) put(t target, fields map[string]any, create bool) (*object, int, metav1.StatusReason, error) {
	var in struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	data, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err != nil {
		return nil, http.StatusBadRequest, metav1.StatusReasonBadRequest, err
	}
	if kind := t.GroupVersion().WithKind(t.Kind); s.scheme.Recognizes(kind) {
		typed, err := s.scheme.New(kind)
		if err == nil {
			err = json.Unmarshal(data, typed)
		}
		if err != nil {
			return nil, http.StatusBadRequest, metav1.StatusReasonBadRequest, err
		}
	}
	meta := in.Metadata
	if meta.Name == "" || (t.name != "" && t.name != meta.Name) || (t.namespace != "" && meta.Namespace != "" && t.namespace != meta.Namespace) {
		return nil, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Errorf("the object is %s/%s, the path names %s/%s", meta.Namespace, meta.Name, t.namespace, t.name)
	}
	if t.Namespaced && meta.Namespace == "" {
		meta.Namespace = t.namespace
	}
	key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[t.Resource.Resource][key]
	switch {
	case create && before != nil:
		return nil, http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Errorf("%s %q already exists", t.Resource.Resource, key.Name)
	case create && meta.ResourceVersion != "":
		return nil, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Errorf("resourceVersion should not be set on objects to be created")
	case !create && before == nil:
		return nil, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Errorf("%s %q not found", t.Resource.Resource, key.Name)
	case !create && meta.ResourceVersion != "" && meta.ResourceVersion != before.meta.ResourceVersion,
		!create && meta.UID != "" && meta.UID != before.meta.UID:
		return nil, http.StatusConflict, metav1.StatusReasonConflict, fmt.Errorf("%s %q: the object has been modified", t.Resource.Resource, key.Name)
	}
	code := http.StatusOK
	if create {
		code = http.StatusCreated
		if meta.CreationTimestamp = metav1.Now(); meta.UID == "" { // the real server takes none
			meta.UID = uuid.NewUUID()
		}
	} else {
		meta.UID, meta.CreationTimestamp, meta.ResourceVersion = before.meta.UID, before.meta.CreationTimestamp, before.meta.ResourceVersion
		same := &object{resource: t.Resource, meta: meta, fields: maps.Clone(fields)}
		if same.setMeta(); reflect.DeepEqual(same.fields, before.fields) {
			return before, code, "", nil // the real server writes nothing either
		}
	}
	return s.store(t.Resource, key, meta, fields, before), code, "", nil
}

// store makes the change. s.mu is held.
func (s *Server) store(resource Resource, key types.NamespacedName, meta metav1.ObjectMeta, fields map[string]any, before *object) *object {
	s.version++
	meta.ResourceVersion = strconv.FormatUint(s.version, 10)
	o := &object{resource: resource, version: s.version, meta: meta, fields: maps.Clone(fields)}
	o.setMeta()
	if s.objects[resource.Resource] == nil {
		s.objects[resource.Resource] = map[types.NamespacedName]*object{}
	}
	s.objects[resource.Resource][key] = o
	s.history = append(s.history, change{s.version, before, o})
	s.changed.Broadcast()
	return o
}

// setMeta has the fields say what meta says.
func (o *object) setMeta() {
	meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.meta)
	if err != nil {
		panic(err)
	}
	o.fields["metadata"], o.fields["apiVersion"], o.fields["kind"] = meta, o.apiVersion(), o.resource.Kind
}

// at is the object with another version.
func (o *object) at(version uint64) *object {
	copied := *o
	copied.version, copied.fields = version, maps.Clone(o.fields)
	copied.meta.ResourceVersion = strconv.FormatUint(version, 10)
	copied.setMeta()
	return &copied
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, t target) {
	var options metav1.DeleteOptions
	if data, err := io.ReadAll(io.LimitReader(r.Body, maxBody)); err == nil && len(data) > 0 {
		decode := func() error { return json.Unmarshal(data, &options) }
		if r.Header.Get("Content-Type") == protobuf {
			decode = func() error { _, _, err := s.codecs.UniversalDeserializer().Decode(data, nil, &options); return err }
		}
		if err := decode(); err != nil {
			s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	s.mu.Lock()
	o := s.objects[t.Resource.Resource][t.key()]
	switch p := options.Preconditions; {
	case o == nil:
		s.mu.Unlock()
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", t.Resource.Resource, t.name))
		return
	case p != nil && p.UID != nil && *p.UID != o.meta.UID, p != nil && p.ResourceVersion != nil && *p.ResourceVersion != o.meta.ResourceVersion:
		s.mu.Unlock()
		s.fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the precondition does not hold")
		return
	}
	s.delete(o)
	s.mu.Unlock()
	s.answer(w, r, http.StatusOK, o)
}

// delete makes the change. s.mu is held.
func (s *Server) delete(o *object) {
	s.version++
	delete(s.objects[o.resource.Resource], types.NamespacedName{Namespace: o.meta.Namespace, Name: o.meta.Name})
	s.history = append(s.history, change{s.version, o, nil})
	s.changed.Broadcast()
}

// Put is [Server.TryPut] that panics in place of an error.
func (s *Server) Put(value any) {
	if err := s.TryPut(value); err != nil {
		panic(err)
	}
}

// TryPut creates or replaces an object of the scheme, or a map of fields with apiVersion and kind, whatever version it
// has. It returns why the server refuses the object, and panics when the server has no such resource.
func (s *Server) TryPut(value any) error {
	fields, ok := value.(map[string]any)
	if !ok {
		var err error
		if fields, err = runtime.DefaultUnstructuredConverter.ToUnstructured(value); err != nil {
			panic(err)
		}
		kinds, _, err := s.scheme.ObjectKinds(value.(runtime.Object))
		if err != nil {
			panic(err)
		}
		fields["apiVersion"], fields["kind"] = kinds[0].GroupVersion().String(), kinds[0].Kind
	}
	for _, r := range s.resources {
		if r.GroupVersion().String() != fields["apiVersion"] || r.Kind != fields["kind"] {
			continue
		}
		meta := fields["metadata"].(map[string]any)
		delete(meta, "resourceVersion")
		namespace, _ := meta["namespace"].(string)
		name, _ := meta["name"].(string)
		s.mu.Lock()
		exists := s.objects[r.Resource][types.NamespacedName{Namespace: namespace, Name: name}] != nil
		s.mu.Unlock()
		_, _, _, err := s.put(target{Resource: r, namespace: namespace, name: name}, fields, !exists)
		return err
	}
	panic(fmt.Sprintf("no resource for %v %v", fields["apiVersion"], fields["kind"]))
}

// Delete deletes an object, if it is there.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[resource][types.NamespacedName{Namespace: namespace, Name: name}]; o != nil {
		s.delete(o)
	}
}
