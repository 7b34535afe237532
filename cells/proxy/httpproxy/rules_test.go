package httpproxy

import (
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

func parsed(t testing.TB, text string) *Request {
	t.Helper()
	r := new(Request)
	if reason := r.parse([]byte(text), 128, new(knownHost)); reason != "" {
		t.Fatalf("%q: %s", text, reason)
	}
	return r
}

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rules []model.HTTPRule
		text  string
		want  Reason
	}{
		{"no rules", nil, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"rule without conditions", []model.HTTPRule{{}}, "GET /../ HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"method", []model.HTTPRule{{Method: "GET|HEAD"}}, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"method in lower case", []model.HTTPRule{{Method: "GET"}}, "get / HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"whole method", []model.HTTPRule{{Method: "GE"}}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"whole path", []model.HTTPRule{{Path: "/a"}}, "GET /ab HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"alternatives are anchored", []model.HTTPRule{{Path: "/a|/b"}}, "GET /ax/b HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"path with query", []model.HTTPRule{{Path: `/a\?b=.*`}}, "GET /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"path without query", []model.HTTPRule{{Path: "/a"}}, "GET /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"path of absolute form", []model.HTTPRule{{Path: "/a"}}, "GET http://h/a HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"host in any case, without port", []model.HTTPRule{{Host: `a\.b`}}, "GET / HTTP/1.1\r\nHost: A.B:80\r\n\r\n", ""},
		{"other host", []model.HTTPRule{{Host: `a\.b`}}, "GET / HTTP/1.1\r\nHost: axb\r\n\r\n", ReasonNoRule},
		{"all conditions of one rule", []model.HTTPRule{{Method: "GET", Path: "/a"}, {Method: "POST", Path: "/b"}}, "GET /b HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{"second rule", []model.HTTPRule{{Method: "GET", Path: "/a"}, {Method: "POST", Path: "/b"}}, "POST /b HTTP/1.1\r\nHost: h\r\n\r\n", ""},
		{"header", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "x-a", Value: "1"}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A:  1 \r\n\r\n", ""},
		{"header in two lines", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", Value: "1"}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A: 2\r\nX-A: 1\r\n\r\n", ReasonNoRule},
		{"header of any value in two lines", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", AnyValue: true}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A: 2\r\nX-A: 1\r\n\r\n", ""},
		{"header of another value", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", Value: "1"}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A: 11\r\n\r\n", ReasonNoRule},
		{"header of any value", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", AnyValue: true}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A:\r\n\r\n", ""},
		{"header with an underscore, which WSGI joins with it", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", Value: "1"}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx_a: 2\r\n\r\n", ReasonNoRule},
		{"header with a dash, which WSGI joins with it", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X_A", AnyValue: true}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX_A: 1\r\nX-A: 2\r\n\r\n", ReasonNoRule},
		{"header with an underscore that is not forwarded", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", Value: "1"}}}}, "GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nX_A: 2\r\nConnection: x_a\r\n\r\n", ""},
		{"no header", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", AnyValue: true}}}}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", ReasonNoRule},
		{
			"header that is not forwarded", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-A", Value: "1"}}}},
			"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nConnection: x-a\r\n\r\n", ReasonNoRule,
		},
		{
			"upgrade", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "Upgrade", Value: "websocket"}}}},
			"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", "",
		},
		{
			"upgrade that is not forwarded", []model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "Upgrade", AnyValue: true}}}},
			"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", ReasonNoRule,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := Compile(tt.rules)
			if err != nil {
				t.Fatal(err)
			}
			if got := rules.Decide(parsed(t, tt.text)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestDecideHeadersOfHTTP2 has a header with an underscore beside the header of a rule.
func TestDecideHeadersOfHTTP2(t *testing.T) {
	rules, err := Compile([]model.HTTPRule{{Headers: []model.HTTPHeader{{Name: "X-Role", Value: "user"}}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Method: "GET", Path: "/", headers: []Header{{Name: "x-role", Value: "user"}, {Name: "y_role", Value: "admin"}}}
	if got := rules.Decide(r); got != "" {
		t.Errorf("x-role alone: %q, want it to pass", got)
	}
	r.headers[1].Name = "x_role"
	if got := rules.Decide(r); got != ReasonNoRule {
		t.Errorf("x-role with x_role: %q, want %q", got, ReasonNoRule)
	}
}

func TestCompileReportsEveryFault(t *testing.T) {
	_, err := Compile([]model.HTTPRule{
		{Method: "("},
		{Path: "/a)|(/b"},
		{Host: `\1`, Headers: []model.HTTPHeader{{Name: "a b"}, {Name: "X", Value: "a\nb"}, {Name: "host", Value: "h"}, {Name: "Y", Value: " a"}}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`rule 0: method "("`, `rule 1: path`, `rule 2: host`, `header "a b"`, `header "X"`, `header "host"`, `header "Y"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// TestDecidePath has paths that servers may read in different ways.
func TestDecidePath(t *testing.T) {
	for _, tt := range []struct{ rules, allowed, ambiguous, denied string }{ // rules and paths, with blanks between them
		{"/.*", "/p/group%2Fproject /@scope%2fname /a%2fb?x=%2f /a/../b /a//b /a%5cb /a/..%2fb / /..", "", ""},
		{"/p/group%2Fproject", "/p/group%2Fproject", "", "/p/group%2fproject /p/group/project"},
		{"ANY /x", "/a%2fb /a/../b /a//b /.%2e/x", "", ""},
		{
			"/public/.*",
			"/public/a%2Fb /public/%61 /public/a%20b /public/a;b /public/x?u=http://h//p/%2F.. /public/... /public/.a /public/a. /public/..a/b.. " +
				"/public//x /public/./x /public/a/../x /public/a%2f..%2fx /public/%2e/x /public/a\\b /public/a%5cb /public/a%252fb /public/%252e%252e/x /public/",
			"/public/../x /public/%2e%2e/x /public/.%2E/x /public/..%2fx /public/%2e%2e%2fx /public/a%2f..%2f..%2fx /public/..%5cx /public/..\\x " +
				"/public/..;/x /public/..;a=b/x /public/%2e%2e%3b/x /public/a//../../x /public/.. /public/..?x /public/./../x /public/a/..;/../x",
			"/private /public //public/x /PUBLIC/x /../public/x",
		},
		// What servers that separate only at some of these signs read as /q/...
		{"/a/.*", "", "/a/../q//../a/x /a/q%2fr/../../x /a/../q%2fr/../a/x /a/../q/r%2fs/..\\../../../../a/x /a/../q%2fr//../../a/x /a/../q\\r/../a/x", ""},
		{"/a//b", "", "/a//b", "/a/b"},
		// Control characters, blanks beside dots, and what is no UTF-8.
		{
			"/public/.*",
			"/public/a%09b /public/%0a /public/a%00 /public/a%20.b /public/Dr.%20No.pdf /public/caf%c3%a9 /public/caf%e9 /public/%ff%fe/x /public/%c0%af /public/%7f " +
				"/public/.%20x /public/%e2%80%a5/x",
			"/public/..%00/x /public/..%00 /public/.%00./x /public/..%09/x /public/%0d../x /public/.%7f./x /public/..%20/x /public/.%20./x /public/%20..%20%20/x " +
				"/public/..%20;a/x /public/..%00%20/x /public/%c0%ae%c0%ae/x /public/.%c0%2e/x /public/%e0%80%ae./x /public/%f0%80%80%ae%2e/x " +
				"/public/..%c0%afx /public/..%e0%80%afx /public/..%c1%9cx /public/..%ff/x /public/.%80./x /public/../private%00/../public/x",
			"",
		},
		{"/a%00", "", "/a%00", ""},
		// Servers that remove what follows ";" or blanks see an empty segment.
		{
			"/public/.*",
			"/public/a;v=1/x /public/;a/x /public/%20/x /public//;/x",
			"/public/;/../x /public/;a=b/%2e%2e/x /public/%3b/../x /public/%20;/..;/x /public///%20/../../x /public//%09/../../x",
			"",
		},
		{"/caf%c3%a9", "/caf%c3%a9", "", ""},
		{"/.*", "/a%0ab /a%00 /..%20 /%ff /%c0%ae%c0%ae/x", "", ""},
		{"/a/b", "/a/b", "", "/a//b /a/./b"},
		{"/a|/.*", "/a//b", "", ""},
	} {
		var rules []model.HTTPRule
		for path := range strings.FieldsSeq(tt.rules) {
			rules = append(rules, model.HTTPRule{Path: strings.TrimPrefix(path, "ANY")})
		}
		compiled, err := Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		for want, paths := range map[Reason]string{"": tt.allowed, ReasonAmbiguousPath: tt.ambiguous, ReasonNoRule: tt.denied} {
			for path := range strings.FieldsSeq(paths) {
				if got := compiled.Decide(parsed(t, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")); got != want {
					t.Errorf("%s under %q: %q, want %q", path, tt.rules, got, want)
				}
			}
		}
	}
}

// FuzzPattern compares with what regexp finds: whether the longest match from the beginning is the whole text.
func FuzzPattern(f *testing.F) {
	for _, e := range []string{"GET", "/a/.*", "a|b", "(?i)a", "(?s)/.*", "a.*?", "a|", "^a$", `\Qa.\E`, "a.*b", "[ab]", "(a|b)c", "ab?", `\Q`} {
		for _, text := range []string{"GET", "/a/b", "a", "A", "ab", "/\n", "/a/\n"} {
			f.Add(e, text)
		}
	}
	f.Fuzz(func(t *testing.T, expression, text string) {
		p, err := compilePattern("path", expression)
		want, wantErr := regexp.Compile(expression)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, and of regexp %v", expression, err, wantErr)
		}
		if err != nil || expression == "" {
			return
		}
		want.Longest()
		found := want.FindStringIndex(text)
		whole := found != nil && found[0] == 0 && found[1] == len(text)
		if got := p.matches(text); got != whole {
			t.Errorf("%q matches the whole of %q: %v, want %v", expression, text, got, whole)
		}
	})
}
