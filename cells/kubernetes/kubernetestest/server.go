package kubernetestest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

// Resource is a kind that the server has.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// path is where the resource's objects are, without namespace and name: /apis/GROUP/VERSION.
func (r Resource) path() string {
	if r.Group == "" {
		return "/api/" + r.Version
	}
	return "/apis/" + r.Group + "/" + r.Version
}

// object is one state of an object, as JSON and decoded.
type object struct {
	resource Resource
	version  uint64
	meta     metav1.ObjectMeta
	fields   map[string]any
}

// change is what watches send: before is nil for a new object, after for a deleted one.
type change struct {
	version       uint64
	before, after *object
}

// Request is a request that the server has got.
type Request struct {
	Verb     string // get, list, watch, create, update, patch, delete
	Resource string
	Selector string // of fields or labels
}

// Server is an API server. Its methods may be called concurrently.
type Server struct {
	scheme    *runtime.Scheme
	codecs    serializer.CodecFactory
	resources []Resource

	mu       sync.Mutex // guards the fields below
	changed  *sync.Cond // of the fields below
	version  uint64
	floor    uint64 // watches from before are 410
	objects  map[string]map[types.NamespacedName]*object
	history  []change
	bookmark uint64 // counts rounds of bookmarks
	epoch    uint64 // counts restores and ends of watches: each ends the watches of before
	requests []Request
	fault    func(Request) *Fault
}

// Fault is how the server fails a request. The zero value does not.
type Fault struct {
	Code       int // answers with this status, and does nothing
	RetryAfter int // seconds, with Code
	// Drop does what is asked, and closes the connection in the place of the answer.
	Drop bool
	// Wait delays the answer until it is closed.
	Wait <-chan struct{}
}

// New returns a server without objects. The scheme has the Go types of resources that clients ask for in protobuf;
// others are JSON.
func New(scheme *runtime.Scheme, resources ...Resource) *Server {
	s := &Server{scheme: scheme, codecs: serializer.NewCodecFactory(scheme), resources: resources, version: 1, objects: map[string]map[types.NamespacedName]*object{}}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Serve adds a resource, as when its CRD is created.
func (s *Server) Serve(resource Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources = append(s.resources, resource)
}

// Fault sets what decides about requests from now on; nil ends it.
func (s *Server) Fault(fault func(Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Requests returns what was asked, and forgets it.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Version is the last one.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.FormatUint(s.version, 10)
}

// Compact has watches from a version of before, and lists that are half read, fail with 410.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor, s.history = s.version, nil
}

// EndWatches closes all watches, as the real server does each hour.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	s.changed.Broadcast()
}

// Bookmark has all watches that want one send a bookmark.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bookmark++
	s.changed.Broadcast()
}

// Backup is a state that [Server.Restore] goes back to.
type Backup struct {
	version uint64
	objects map[string]map[types.NamespacedName]*object
}

// Backup returns the present state.
func (s *Server) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{s.version, clone(s.objects)}
}

// Restore sets the server back, and ends all watches. With bump, versions continue above all earlier versions, which
// are compacted: etcdutl snapshot restore --bump-revision --mark-compacted.
func (s *Server) Restore(b Backup, bump uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.objects, s.history, s.floor = b.version, clone(b.objects), nil, 0
	if bump > 0 {
		s.version += bump
		s.floor = s.version
	} else {
		s.floor = b.version
	}
	s.epoch++
	s.changed.Broadcast()
}

func clone(all map[string]map[types.NamespacedName]*object) map[string]map[types.NamespacedName]*object {
	copied := make(map[string]map[types.NamespacedName]*object, len(all))
	for resource, objects := range all {
		copied[resource] = make(map[types.NamespacedName]*object, len(objects))
		for key, o := range objects {
			copied[resource][key] = o
		}
	}
	return copied
}

// target is what a path names.
type target struct {
	Resource
	namespace, name, subresource string
}

func (t target) key() types.NamespacedName {
	return types.NamespacedName{Namespace: t.namespace, Name: t.name}
}

// find reads a path: /api/v1/namespaces/NAMESPACE/pods/NAME/status.
func (s *Server) find(path string) (t target, ok bool) {
	for _, r := range s.resources {
		rest, ok := strings.CutPrefix(path, r.path()+"/")
		if !ok {
			continue
		}
		parts := strings.Split(rest, "/")
		t = target{Resource: r}
		if r.Namespaced && len(parts) >= 3 && parts[0] == "namespaces" {
			t.namespace, parts = parts[1], parts[2:]
		}
		if parts[0] != r.Resource || len(parts) > 3 || len(parts) == 3 && parts[2] != "status" { // namespaces/shop/events is no part of a Namespace
			continue
		}
		if parts = append(parts, "", ""); parts[1] != "" {
			t.name, t.subresource = parts[1], parts[2]
		}
		return t, true
	}
	return target{}, false
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	t, ok := s.find(r.URL.Path)
	s.mu.Unlock()
	if !ok {
		s.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	verb := verbOf(r, t)
	request := Request{Verb: verb, Resource: t.GroupVersionResource.Resource, Selector: cmp.Or(r.URL.Query().Get("fieldSelector"), r.URL.Query().Get("labelSelector"))}
	fault, epoch := s.record(request)
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-r.Context().Done():
			return
		}
	}
	if fault.Code != 0 {
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		s.fail(w, fault.Code, reasonOf(fault.Code), "fault of the test")
		return
	}
	if fault.Drop {
		w = dropper{header: http.Header{}}
		defer panic(http.ErrAbortHandler)
	}
	switch verb {
	case "list":
		s.list(w, r, t)
	case "watch":
		s.watch(w, r, t, epoch)
	case "get":
		s.get(w, r, t)
	case "create", "update":
		s.write(w, r, t, verb)
	case "patch":
		s.patch(w, r, t)
	case "delete":
		s.remove(w, r, t)
	default:
		s.fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, r.Method)
	}
}

func (s *Server) record(request Request) (f Fault, epoch uint64) {
	s.mu.Lock()
	s.requests = append(s.requests, request)
	decide, epoch := s.fault, s.epoch
	s.mu.Unlock()
	if decide == nil {
		return f, epoch
	}
	if fault := decide(request); fault != nil {
		return *fault, epoch
	}
	return f, epoch
}

// dropper is a ResponseWriter that discards the answer.
type dropper struct{ header http.Header }

func (d dropper) Header() http.Header            { return d.header }
func (d dropper) Write(data []byte) (int, error) { return len(data), nil }
func (d dropper) WriteHeader(int)                {}

func verbOf(r *http.Request, t target) string {
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "" && r.URL.Query().Get("watch") != "false":
		return "watch"
	case r.Method == http.MethodGet && t.name == "":
		return "list"
	case r.Method == http.MethodGet:
		return "get"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	case r.Method == http.MethodDelete:
		return "delete"
	}
	return strings.ToLower(r.Method)
}

func reasonOf(code int) metav1.StatusReason {
	switch code {
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusUnauthorized:
		return metav1.StatusReasonUnauthorized
	}
	return metav1.StatusReasonInternalError
}

func statusOf(code int, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

// fail answers with a Status, always as JSON.
func (s *Server) fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(statusOf(code, reason, message))
}

// selectorOf is of fields and labels.
func selectorOf(query url.Values) (func(*object) bool, error) {
	byFields, err := selector(query.Get("fieldSelector"))
	if err != nil {
		return nil, err
	}
	byLabels, err := labels.Parse(query.Get("labelSelector"))
	return func(o *object) bool { return byFields(o) && byLabels.Matches(labels.Set(o.meta.Labels)) }, err
}

// selector decides by fields, such as spec.nodeName=a,metadata.name!=b.
func selector(text string) (func(*object) bool, error) {
	type term struct {
		path  []string
		value string
		equal bool
	}
	var terms []term
	for _, part := range strings.Split(text, ",") {
		if part == "" {
			continue
		}
		field, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("field selector %q: want FIELD=VALUE", text)
		}
		value = strings.TrimPrefix(value, "=")
		field, not := strings.CutSuffix(field, "!")
		terms = append(terms, term{strings.Split(field, "."), value, !not})
	}
	return func(o *object) bool {
		return !slices.ContainsFunc(terms, func(t term) bool {
			var value any = o.fields
			for _, name := range t.path {
				fields, _ := value.(map[string]any)
				value = fields[name]
			}
			text, _ := value.(string)
			return (text == t.value) != t.equal
		})
	}, nil
}
