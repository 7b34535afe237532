package httpproxy

import (
	"bytes"
	"strings"
)

// form is a set of ways in which a server may read a path, other than by its text.
type form uint8

const (
	encodedSlash     form = 1 << iota // "%2F" separates segments
	backslash                         // "\" does
	encodedBackslash                  // "%5C" does
	decoded                           // escapes are decoded, empty segments left out; "..;x" is ".."
	ambiguous                         // no such way, but a sign that the path has to be read in all of them
	allForms         = ambiguous - 1
)

// maxAmbiguous bounds what is spent on an ambiguous path, which is read in up to 16 ways.
const maxAmbiguous = 8 << 10

// readings returns the paths, each with the query, that servers may take an ambiguous path for, and nil for any other path. A path is
// ambiguous if it has backslashes, empty segments or segments "." and "..", maybe after decoding. An encoded slash alone makes none so.
// Where ".." leads depends on all that may separate segments, so there is a reading for each combination. ok is false for a path too long.
func readings(target string) (all []string, ok bool) {
	path, query := target, ""
	if i := strings.IndexByte(target, '?'); i >= 0 {
		path, query = target[:i], target[i:]
	}
	if !strings.Contains(path, "%") && !strings.Contains(path, `\`) && !strings.Contains(path, "//") && !strings.Contains(path, "/.") {
		return nil, true
	}
	var room [512]byte
	_, seen := resolve(room[:0], path, allForms)
	if seen&ambiguous == 0 {
		return nil, true
	}
	if len(path) > maxAmbiguous {
		return nil, false
	}
	for how := range ambiguous {
		if how&^(seen|decoded) == 0 {
			b, _ := resolve(nil, path, how)
			all = append(all, string(b)+query)
		}
	}
	return all, true
}

// resolve appends a path that begins with "/", without segments "." and ".." (RFC 3986, 5.2.4). It returns which forms the path has.
func resolve(b []byte, path string, how form) (_ []byte, seen form) {
	start := len(b) // of the segment
	for i, n := 0, 0; i <= len(path); i += n {
		var c byte
		separator := form(0)
		if n = 1; i < len(path) {
			c = path[i]
			if c == '%' && i+2 < len(path) {
				c, n = unhex(path[i+1])<<4|unhex(path[i+2]), 3
			}
			switch {
			case c == '/' && n > 1:
				separator = encodedSlash
			case c == '\\' && n > 1:
				separator = encodedBackslash
			case c == '\\':
				separator = backslash
			}
		}
		switch {
		case i == len(path) || c == '/' && n == 1 || how&separator != 0:
			var resolved bool
			if b, resolved = resolveSegment(b, start, how, i == len(path)); resolved {
				seen |= ambiguous
			}
			start = len(b)
		case how&decoded == 0 || separator != 0:
			b = append(b, path[i:i+n]...)
		default:
			b = append(b, c)
		}
		if seen |= separator; separator&^encodedSlash != 0 {
			seen |= ambiguous
		}
	}
	return b, seen
}

// resolveSegment ends the segment that begins at start with a slash, unless it is the last one. It reports whether it has left it out.
func resolveSegment(b []byte, start int, how form, last bool) (_ []byte, resolved bool) {
	name := b[start:]
	if how&decoded != 0 {
		if before, _, ok := bytes.Cut(name, []byte(";")); ok && isDots(before) {
			name = before
		}
	}
	switch {
	case string(name) == ".", len(name) == 0 && !last && start > 0 && how&decoded != 0:
		return b[:start], true
	case string(name) == "..":
		if b = b[:start]; start > 1 {
			b = b[:bytes.LastIndexByte(b[:start-1], '/')+1]
		}
		return b, true
	case !last:
		b = append(b, '/')
	}
	return b, false
}

func isDots(name []byte) bool { return string(name) == "." || string(name) == ".." }
