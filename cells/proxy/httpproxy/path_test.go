package httpproxy

import (
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzReadings compares the reading that resolves the most with the result of net/url and path.
func FuzzReadings(f *testing.F) {
	for _, p := range []string{"/", "/a/../b", "/a%2f..%5Cb/./c", "//a//", "/..", "/a/..", "/%2e%2E/x", "/...", `/a\..\b`, "/..;x/a", "/%c0%ae./%c0%af", "/a%00/..", "/.%20/%ff", "*"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if !strings.HasPrefix(p, "/") || strings.Contains(p, "?") || !validEscapes(p) || len(p) > 1024 {
			return
		}
		all, ok := readings(p)
		if !ok {
			t.Fatalf("%q: too long", p)
		}
		for _, r := range all {
			for segment := range strings.SplitSeq(r, "/") {
				if segment == "." || segment == ".." {
					t.Errorf("%q may be read as %q", p, r)
				}
			}
		}
		text, err := url.PathUnescape(p)
		if err != nil || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == ';' || r == 0x7f }) {
			return
		}
		want := path.Clean(strings.ReplaceAll(text, `\`, "/"))
		got := text
		if len(all) > 0 {
			got = all[len(all)-1]
		}
		if got != want && got != want+"/" {
			t.Errorf("%q: resolved to %q, want %q", p, got, want)
		}
	})
}
