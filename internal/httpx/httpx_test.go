package httpx_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

func TestHandlerError(t *testing.T) {
	tests := []struct {
		kind   fault.Kind
		status int
	}{
		{fault.Invalid, 400},
		{fault.Forbidden, 403},
		{fault.NotFound, 404},
		{fault.Conflict, 409},
		{fault.TooLarge, 413},
		{fault.Internal, 500},
		{fault.Exhausted, 503},
		{fault.Unavailable, 503},
		{fault.Deadline, 504},
	}
	for _, tt := range tests {
		t.Run(string(tt.kind), func(t *testing.T) {
			w := httptest.NewRecorder()
			httpx.Handler(func(http.ResponseWriter, *http.Request) error {
				return fault.New(tt.kind, "why")
			}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))

			want := v1.Problem{Title: http.StatusText(tt.status), Status: tt.status, Code: string(tt.kind), Detail: "why"}
			if got := problem(t, w); got != want || w.Code != tt.status {
				t.Errorf("answer %d %+v, want %d %+v", w.Code, got, tt.status, want)
			}
		})
	}
}

func TestDecodeInvalid(t *testing.T) {
	tests := []struct {
		name, body string
		want       fault.Kind
	}{
		{"empty", "", fault.Invalid},
		{"malformed", `{"containerID":`, fault.Invalid},
		{"unknown field", `{"containerID":"a","force":true}`, fault.Invalid},
		{"wrong type", `{"containerID":7}`, fault.Invalid},
		{"two values", `{"containerID":"a"} {}`, fault.Invalid},
		{"too large", `{"containerID":"` + strings.Repeat("a", httpx.MaxBody) + `"}`, fault.TooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(strings.NewReader(tt.body))
			if err == nil || fault.KindOf(err) != tt.want {
				t.Errorf("error %v of kind %s, want kind %s", err, fault.KindOf(err), tt.want)
			}
		})
	}
}

func TestDecodeIncomplete(t *testing.T) {
	_, err := decode(io.MultiReader(strings.NewReader(`{"cont`), failingReader{os.ErrDeadlineExceeded}))
	if fault.KindOf(err) != fault.Deadline {
		t.Errorf("error %v, want a deadline", err)
	}
}

func TestParamEscaped(t *testing.T) {
	for path, want := range map[string]string{
		"/x/pod-name:default%2Fweb": "pod-name:default/web",
		"/x/ipv6:fd00::1":           "ipv6:fd00::1",
		"/x/a%20b":                  "a b",
		"/x/a%2525b":                "a%25b",
		"/x/%2525%2F":               "%25/",
	} {
		var got string
		r := chi.NewRouter()
		r.Get("/x/{ref}", func(_ http.ResponseWriter, r *http.Request) { got, _ = httpx.Param(r, "ref") })
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// FuzzDecode holds that no body makes the decoder panic, and that what it takes it takes again from its own encoding.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `{"host":{"name":"por1","mac":"02:00:00:00:00:01"},"container":{"name":"eth0","mac":""}}`,
		`{"addresses":{"ipv4":"10.0.0.1","ipv6":""},"began":-1}`, `{"addresses":{"ipv4":"::ffff:10.0.0.1%eth0"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(body))
		first, err := httpx.Decode[v1.EndpointRequest](httptest.NewRecorder(), r)
		if err != nil {
			return
		}
		again, err := json.Marshal(first)
		if err != nil {
			t.Fatalf("encode what was decoded from %q: %v", body, err)
		}
		r = httptest.NewRequest(http.MethodPut, "/", strings.NewReader(string(again)))
		if second, err := httpx.Decode[v1.EndpointRequest](httptest.NewRecorder(), r); err != nil || !reflect.DeepEqual(second, first) {
			t.Fatalf("%q became %s, read again as %+v, %v", body, again, second, err)
		}
	})
}

func decode(body io.Reader) (v1.DeleteRequest, error) {
	r := httptest.NewRequest(http.MethodDelete, "/v1/endpoint", body)
	return httpx.Decode[v1.DeleteRequest](httptest.NewRecorder(), r)
}

func problem(t *testing.T, w *httptest.ResponseRecorder) (p v1.Problem) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("problem %q: %v", w.Body, err)
	}
	return p
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
