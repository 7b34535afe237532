package httpproxy

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// form is a set of conversions that a server may do before it uses a path.
type form uint8

const (
	encodedSlash     form = 1 << iota // "%2F" separates segments
	backslash                         // "\" separates segments
	encodedBackslash                  // "%5C" separates segments
	decoded                           // escapes are decoded, empty segments and control characters left out; "..;x" and ".. " are ".."
	ambiguous                         // no conversion: resolve sets it if conversions change where the path leads
	allForms         = ambiguous - 1
)

// maxAmbiguous limits the work for an ambiguous path, which has up to 32 readings.
const maxAmbiguous = 8 << 10

// readings returns all paths, each with the query, that servers may read an ambiguous path as. It returns nil for other paths. A path is
// ambiguous if it has backslashes, empty segments, segments "." or ".." (before or after decoding), control characters, or invalid UTF-8.
// An encoded slash alone does not make it ambiguous. Where ".." leads depends on which characters separate segments, so there is a reading
// for each combination of forms, of the whole path and of the part before the first NUL. ok is false if the path is too long.
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
	for {
		for how := range ambiguous {
			if how&^(seen|decoded) == 0 {
				b, _ := resolve(nil, path, how)
				all = append(all, string(b)+query)
			}
		}
		nul := strings.Index(path, "%00")
		if nul < 0 {
			return all, true
		}
		path = path[:nul]
	}
}

// resolve appends a path that begins with "/", converted by the forms how and without segments "." and ".." (RFC 3986, 5.2.4). seen has the
// forms that make a difference for this path.
func resolve(b []byte, path string, how form) (_ []byte, seen form) {
	start := len(b) // of the segment
	for i, n := 0, 0; i <= len(path); i += n {
		var c byte
		separator := form(0)
		if n = 1; i < len(path) {
			c, n = unescape(path[i:])
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
		case c < ' ' || c == 0x7f:
			seen |= ambiguous
		default:
			b = append(b, c)
		}
		if seen |= separator; separator&^encodedSlash != 0 || n > 3 {
			seen |= ambiguous
		}
	}
	if !utf8.Valid(b) {
		seen |= ambiguous
	}
	return b, seen
}

// unescape returns the first character of path, decoded, and its length in path. For a character above ASCII it returns the first byte. An
// ASCII character in an overlong UTF-8 encoding, which some servers accept, is decoded.
func unescape(path string) (c byte, n int) {
	if path[0] != '%' || len(path) < 3 {
		return path[0], 1
	}
	c = unhex(path[1])<<4 | unhex(path[2])
	more := 0
	switch c {
	case 0xc0, 0xc1:
		more = 1
	case 0xe0:
		more = 2
	case 0xf0:
		more = 3
	}
	value := uint(c & 1)
	for n = 3; n <= 3*more; n += 3 {
		if len(path) < n+3 || path[n] != '%' || unhex(path[n+1])>>2 != 0b10 {
			return c, 3
		}
		value = value<<6 | uint(unhex(path[n+1])<<4|unhex(path[n+2]))&0x3f
	}
	if more > 0 && value < utf8.RuneSelf {
		return byte(value), n
	}
	return c, 3
}

// resolveSegment handles the end of the segment that begins at start: it appends a slash, unless the segment is the last one. It resolves
// "." and "..", and reports whether it did so.
func resolveSegment(b []byte, start int, how form, last bool) (_ []byte, resolved bool) {
	name := b[start:]
	if how&decoded != 0 {
		name = bareDots(name)
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

// bareDots returns the dots of a name that has nothing else but blanks, invalid UTF-8 and a part after a semicolon, which some servers
// leave out. It returns any other name as it is.
func bareDots(name []byte) []byte {
	dots, valid := 0, utf8.Valid(name)
	for _, c := range name {
		switch {
		case c == '.':
			dots++
		case c == ';' && dots > 0:
			return []byte("...")[:min(dots, 3)]
		case c == ' ' || c >= utf8.RuneSelf && !valid:
		default:
			return name
		}
	}
	if dots == 0 {
		return name
	}
	return []byte("...")[:min(dots, 3)]
}
