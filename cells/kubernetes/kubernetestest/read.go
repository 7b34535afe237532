package kubernetestest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// form is how an answer is written: protobuf or JSON, and as what.
type form struct {
	media    string
	metadata bool
}

func formOf(r *http.Request) form {
	f := form{media: "application/json"}
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	media, params, err := mime.ParseMediaType(first)
	if err == nil && media == protobuf {
		f.media = protobuf
	}
	f.metadata = strings.HasPrefix(params["as"], "PartialObjectMetadata")
	return f
}

// value is the object in a form: its Go type for protobuf, or its fields.
func (s *Server) value(o *object, f form) (runtime.Object, error) {
	if f.metadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: o.meta}, nil
	}
	data, err := json.Marshal(o.fields)
	if err != nil {
		return nil, err
	}
	if f.media != protobuf {
		return &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: o.apiVersion(), Kind: o.resource.Kind}, Raw: data, ContentType: runtime.ContentTypeJSON}, nil
	}
	typed, err := s.scheme.New(o.resource.GroupVersion().WithKind(o.resource.Kind))
	if err != nil {
		return nil, err
	}
	return typed, json.Unmarshal(data, typed)
}

func (o *object) apiVersion() string { return o.resource.GroupVersion().String() }

// encode writes an object of the scheme.
func (s *Server) encode(f form, value runtime.Object, version schema.GroupVersion) ([]byte, error) {
	if f.metadata {
		version = schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"}
	}
	if unknown, ok := value.(*runtime.Unknown); ok {
		return unknown.Raw, nil
	}
	info, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), f.media)
	if !ok {
		return nil, fmt.Errorf("no serializer for %s", f.media)
	}
	var out bytes.Buffer
	err := s.codecs.EncoderForVersion(info.Serializer, version).Encode(value, &out)
	return out.Bytes(), err
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, t target) {
	s.mu.Lock()
	o := s.objects[t.Resource.Resource][t.key()]
	s.mu.Unlock()
	if o == nil {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", t.Resource.Resource, t.name))
		return
	}
	s.answer(w, r, http.StatusOK, o)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, code int, o *object) {
	f := formOf(r)
	value, err := s.value(o, f)
	if err == nil {
		var data []byte
		if data, err = s.encode(f, value, o.resource.GroupVersion()); err == nil {
			w.Header().Set("Content-Type", f.media)
			w.WriteHeader(code)
			_, _ = w.Write(data)
			return
		}
	}
	s.fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
}

// list answers with a page. A token to continue is the list's version and the key of the last object.
func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) {
	query := r.URL.Query()
	matches, err := selectorOf(query)
	if err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	s.mu.Lock()
	version := s.version
	after := ""
	if token := query.Get("continue"); token != "" {
		number, key, _ := strings.Cut(token, " ")
		after = key
		if version, _ = strconv.ParseUint(number, 10, 64); version < s.floor || version > s.version {
			s.mu.Unlock()
			s.fail(w, http.StatusGone, metav1.StatusReasonExpired, "the provided continue parameter is too old")
			return
		}
	}
	objects := s.at(t, version)
	s.mu.Unlock()
	objects = slices.DeleteFunc(objects, func(o *object) bool { return !matches(o) || (after != "" && name(o) <= after) })
	next := ""
	if limit > 0 && len(objects) > limit {
		objects = objects[:limit]
		next = fmt.Sprintf("%d %s", version, name(objects[limit-1]))
	}
	f := formOf(r)
	data, err := s.encodeList(f, t, objects, metav1.ListMeta{ResourceVersion: strconv.FormatUint(version, 10), Continue: next})
	if err != nil {
		s.fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("Content-Type", f.media)
	_, _ = w.Write(data)
}

func name(o *object) string { return o.meta.Namespace + "/" + o.meta.Name }

// at has the objects of a resource at a version, in the order of their names.
func (s *Server) at(t target, version uint64) []*object {
	present := map[string]*object{}
	for key, o := range s.objects[t.Resource.Resource] {
		if t.namespace == "" || key.Namespace == t.namespace {
			present[name(o)] = o
		}
	}
	for _, c := range slices.Backward(s.history) {
		if c.version <= version {
			break
		}
		o := c.before
		if o == nil {
			o = c.after
		}
		if o.resource.Resource != t.Resource.Resource || (t.namespace != "" && o.meta.Namespace != t.namespace) {
			continue
		}
		if c.before == nil {
			delete(present, name(o))
		} else {
			present[name(o)] = c.before
		}
	}
	var all []*object
	for _, o := range present {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b *object) int { return strings.Compare(name(a), name(b)) })
	return all
}

func (s *Server) encodeList(f form, t target, objects []*object, about metav1.ListMeta) ([]byte, error) {
	if f.metadata {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: about}
		for _, o := range objects {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: o.meta})
		}
		return s.encode(f, list, schema.GroupVersion{})
	}
	type body struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []map[string]any `json:"items"`
	}
	list := body{metav1.TypeMeta{Kind: t.Kind + "List", APIVersion: t.GroupVersion().String()}, about, []map[string]any{}}
	for _, o := range objects {
		list.Items = append(list.Items, o.fields)
	}
	data, err := json.Marshal(list)
	if err != nil || f.media != protobuf {
		return data, err
	}
	typed, err := s.scheme.New(t.GroupVersion().WithKind(t.Kind + "List"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, typed); err != nil {
		return nil, err
	}
	return s.encode(f, typed, t.GroupVersion())
}

// watch sends changes after a version until the request ends.
// The request came in the epoch.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, t target, epoch uint64) {
	query := r.URL.Query()
	matches, err := selectorOf(query)
	if err != nil {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	from, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if err != nil || from == 0 {
		s.fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "this server has no watches without a version")
		return
	}
	f := formOf(r)
	stream, err := s.stream(w, f)
	if err != nil {
		s.fail(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
		return
	}
	w.Header().Set("Content-Type", f.media+";stream=watch")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()

	stop := make(chan struct{})
	defer close(stop)
	go func() { // has the wait below end with the request
		select {
		case <-r.Context().Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		case <-stop:
		}
	}()
	s.mu.Lock()
	marked := s.bookmark
	s.mu.Unlock()
	for {
		s.mu.Lock()
		for r.Context().Err() == nil && s.epoch == epoch && from >= s.floor && s.bookmark == marked && !s.news(from) {
			s.changed.Wait()
		}
		if r.Context().Err() != nil || s.epoch != epoch {
			s.mu.Unlock()
			return
		}
		if from < s.floor {
			s.mu.Unlock()
			status := statusOf(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
			_ = stream.send(apiwatch.Error, &status)
			return
		}
		var events []event
		first, _ := slices.BinarySearchFunc(s.history, from+1, func(c change, version uint64) int { return cmp.Compare(c.version, version) })
		for _, c := range s.history[first:] {
			if e, ok := eventOf(c, t, matches); ok {
				events = append(events, e)
			}
		}
		from = max(from, s.version)
		bookmark := s.bookmark != marked
		marked = s.bookmark
		version := s.version
		s.mu.Unlock()
		for _, e := range events {
			value, err := s.value(e.object, f)
			if err == nil {
				err = stream.send(e.kind, value)
			}
			if err != nil {
				return
			}
		}
		if bookmark && query.Get("allowWatchBookmarks") == "true" && version >= from {
			o := &object{resource: t.Resource, meta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}}
			o.fields = map[string]any{"apiVersion": o.apiVersion(), "kind": t.Kind, "metadata": map[string]any{"resourceVersion": o.meta.ResourceVersion}}
			value, err := s.value(o, f)
			if err == nil {
				err = stream.send(apiwatch.Bookmark, value)
			}
			if err != nil {
				return
			}
		}
	}
}

func (s *Server) news(from uint64) bool {
	return len(s.history) > 0 && s.history[len(s.history)-1].version > from
}

type event struct {
	kind   apiwatch.EventType
	object *object
}

// eventOf is what a change is for a watch: an object that leaves the selector is deleted for it. A deleted object has
// the version of its deletion.
func eventOf(c change, t target, matches func(*object) bool) (event, bool) {
	of := func(o *object) bool {
		return o != nil && o.resource.Resource == t.Resource.Resource && (t.namespace == "" || o.meta.Namespace == t.namespace) && matches(o)
	}
	before, after := of(c.before), of(c.after)
	switch {
	case before && after:
		return event{apiwatch.Modified, c.after}, true
	case after:
		return event{apiwatch.Added, c.after}, true
	case before:
		return event{apiwatch.Deleted, c.before.at(c.version)}, true
	}
	return event{}, false
}

// stream writes the events of a watch.
type stream struct {
	server  *Server
	form    form
	w       http.ResponseWriter
	encoder streaming.Encoder
}

func (s *Server) stream(w http.ResponseWriter, f form) (*stream, error) {
	info, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), f.media)
	if !ok || info.StreamSerializer == nil {
		return nil, fmt.Errorf("no stream of %s", f.media)
	}
	frames := info.StreamSerializer.Framer.NewFrameWriter(w)
	return &stream{s, f, w, streaming.NewEncoder(frames, s.codecs.EncoderForVersion(info.StreamSerializer.Serializer, schema.GroupVersion{Version: "v1"}))}, nil
}

func (s *stream) send(kind apiwatch.EventType, value runtime.Object) error {
	version := value.GetObjectKind().GroupVersionKind().GroupVersion()
	if kinds, _, err := s.server.scheme.ObjectKinds(value); err == nil && len(kinds) > 0 {
		version = kinds[0].GroupVersion()
	}
	f := s.form
	if kind == apiwatch.Error {
		f.metadata = false
	}
	data, err := s.server.encode(f, value, version)
	if err != nil {
		return err
	}
	if err := s.encoder.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: data}}); err != nil {
		return err
	}
	return http.NewResponseController(s.w).Flush()
}
