package httpproxy

import (
	"bytes"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// form is a set of conversions that a server may do before it uses a path.
type form uint16

const (
	encodedSlash      form = 1 << iota // "%2F" separates segments
	backslash                          // "\" separates segments
	encodedBackslash                   // "%5C" separates segments
	decoded                            // escapes are decoded
	merged                             // empty segments are left out
	parameters                         // what follows ";" is left out up to the next "/", before escapes are decoded
	decodedParameters                  // what follows ";" or "%3B" is left out up to the end of the segment
	lenient                            // control characters are left out, beside dots also blanks and invalid UTF-8; overlong UTF-8 is decoded
	ambiguous                          // no conversion: resolve sets it if conversions change where the path leads
	allForms          = ambiguous - 1
)

// maxWork limits the length of an ambiguous path multiplied by the number of its readings.
const maxWork = 256 << 10

// readings returns all paths, each with the query, that servers may read an ambiguous path as. It returns nil for other
// paths. A path is ambiguous if it has backslashes, empty segments, segments "." or ".." (before or after decoding),
// control characters, or invalid UTF-8. An encoded slash alone does not make it ambiguous. Where ".." leads depends on
// which segments a server sees, so there is a reading for each combination of forms in the path, of the whole path and
// of the part before the first NUL. ok is false if that is too much.
func readings(target string) (all []string, ok bool) {
	path, query := target, ""
	if i := strings.IndexByte(target, '?'); i >= 0 {
		path, query = target[:i], target[i:]
	}
	if !strings.ContainsAny(path, `%\`) && !strings.Contains(path, "//") && !strings.Contains(path, "/.") && !strings.Contains(path, "/;") {
		return nil, true
	}
	var room [512]byte
	_, seen := resolve(room[:0], path, allForms)
	_, seenWithParameters := resolve(room[:0], path, allForms&^(parameters|decodedParameters))
	if seen |= seenWithParameters; seen&ambiguous == 0 {
		return nil, true
	}
	seen = seen&allForms | decoded
	if len(path)<<bits.OnesCount16(uint16(seen)) > maxWork {
		return nil, false
	}
	for {
		for how := range ambiguous {
			if how&^seen == 0 {
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

// resolve appends a path that begins with "/", converted by the forms how and without segments "." and ".." (RFC 3986,
// 5.2.4). seen has the forms that make a difference for this path.
func resolve(b []byte, path string, how form) (_ []byte, seen form) {
	start := len(b) // of the segment
	for i, n := 0, 0; i <= len(path); i += n {
		var c byte
		separator := form(0)
		if n = 1; i < len(path) {
			c, n = unescape(path[i:], how&lenient != 0)
			switch {
			case c == '/' && n > 1:
				separator = encodedSlash
			case c == '\\' && n > 1:
				separator = encodedBackslash
			case c == '\\':
				separator = backslash
			case c == ';':
				seen |= parameters | decodedParameters
			}
		}
		control := c < ' ' || c == 0x7f
		switch {
		case i == len(path) || c == '/' && n == 1 || how&separator != 0:
			var special form
			b, special = resolveSegment(b, start, how, i == len(path))
			seen |= special
			start = len(b)
		case how&parameters != 0 && path[i] == ';':
			if n = strings.IndexByte(path[i:], '/'); n < 0 {
				n = len(path) - i
			}
		case how&decoded == 0 || separator != 0 || control && how&lenient == 0:
			b = append(b, path[i:i+n]...)
		case control:
			seen |= ambiguous | lenient
		default:
			b = append(b, c)
		}
		if seen |= separator; separator&^encodedSlash != 0 {
			seen |= ambiguous
		}
		if n > 3 && path[i] == '%' {
			seen |= ambiguous | lenient
		}
	}
	if !utf8.Valid(b) {
		seen |= ambiguous | lenient
	}
	return b, seen
}

// unescape returns the first character of path, decoded, and its length in path. For a character above ASCII it returns
// the first byte. If overlong is set, an ASCII character in an overlong UTF-8 encoding, which some servers accept, is
// decoded.
func unescape(path string, overlong bool) (c byte, n int) {
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
	if overlong && more > 0 && value < utf8.RuneSelf {
		return byte(value), n
	}
	return c, 3
}

// resolveSegment handles the end of the segment that begins at start: it appends a slash, unless the segment is the
// last one. It resolves empty segments, "." and "..". seen has the forms that make a difference for such a segment.
func resolveSegment(b []byte, start int, how form, last bool) (_ []byte, seen form) {
	name := b[start:]
	if how&decodedParameters != 0 {
		name, _, _ = bytes.Cut(name, []byte{';'})
		b = b[:start+len(name)]
	}
	if how&lenient != 0 {
		if dots, ok := onlyDots(name); ok && len(dots) != len(name) {
			name, seen = dots, lenient
		}
	}
	switch {
	case len(name) == 0 && !last && start > 0 && how&merged != 0:
		return b[:start], seen | ambiguous | merged
	case string(name) == ".":
		return b[:start], seen | ambiguous
	case string(name) == "..":
		if b = b[:start]; start > 1 {
			b = b[:bytes.LastIndexByte(b[:start-1], '/')+1]
		}
		return b, seen | ambiguous
	case !last:
		b = append(b, '/')
	}
	return b, 0
}

// onlyDots returns the dots of a name. ok is false if it has anything but dots, blanks and invalid UTF-8.
func onlyDots(name []byte) (dots []byte, ok bool) {
	valid := utf8.Valid(name)
	for _, c := range name {
		if c != '.' && c != ' ' && (c < utf8.RuneSelf || valid) {
			return nil, false
		}
	}
	return []byte("...")[:min(bytes.Count(name, []byte{'.'}), 3)], true
}
