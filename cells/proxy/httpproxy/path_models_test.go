package httpproxy

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// asTomcat reads a path as Tomcat does: it removes parameters, decodes, merges slashes, and resolves dots.
func asTomcat(p string) (string, error) {
	segments := strings.Split(p, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return asGo(strings.Join(segments, "/"))
}

// asGo reads a path as ServeMux of net/http does.
func asGo(p string) (string, error) {
	text, err := url.PathUnescape(p)
	return path.Clean(text), err
}

// asJava reads a path as java.net.URI.normalize does, which keeps empty segments, of the decoded path.
func asJava(p string) (string, error) {
	text, err := url.PathUnescape(p)
	var out []string
	for segment := range strings.SplitSeq(text, "/") {
		switch {
		case segment == "..":
			out = out[:max(1, len(out)-1)]
		case segment != ".":
			out = append(out, segment)
		}
	}
	return strings.Join(out, "/"), err
}

// TestPathsOfModelServers tries all paths made of a few parts: if a rule lets a path pass, the rule also matches what a
// server reads.
func TestPathsOfModelServers(t *testing.T) {
	rules, err := Compile([]model.HTTPRule{{Path: "/a/b/.*"}})
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{"/", "/..", "/%2e%2E", "/.", "/;", "/;x=1", "/%20", "/%3b", "/..;", "%2F..", "%2f", ";", `\..`, "%00", "/%c0%ae.", "/a/b", "x"}
	passed := 0
	var try func(p string, depth int)
	try = func(p string, depth int) {
		for _, part := range parts {
			p := p + part
			if rules.Decide(&Request{Method: "GET", Path: p, Host: "h"}) == "" {
				passed++
				for name, read := range map[string]func(string) (string, error){"Tomcat": asTomcat, "Go": asGo, "Java": asJava} {
					if got, err := read(p); err != nil || !strings.HasPrefix(got+"/", "/a/b/") {
						t.Errorf("the rule /a/b/.* lets %q pass, which %s reads as %q (%v)", p, name, got, err)
					}
				}
			}
			if depth > 1 && !t.Failed() {
				try(p, depth-1)
			}
		}
	}
	for _, start := range []string{"/a/b", "/a/b/c", "/a/b/%2e%2e/%2e%2e/a/b", "/a/b/;/%2e%2e/%2e%2e", "/a/b//%2e%2e/%2e%2e"} {
		try(start, 3)
	}
	if passed == 0 {
		t.Error("no path passed")
	}
}
