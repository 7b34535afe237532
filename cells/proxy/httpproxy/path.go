package httpproxy

import "strings"

// ambiguousPath reports whether servers may read a path as another than its text: encoded slashes, backslashes and NULs, empty segments, and
// segments "." and ".." in any encoding, also with parameters, which some servers cut off first. The query is not part of it.
func ambiguousPath(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	if !strings.ContainsAny(path, `%\.`) && !strings.Contains(path, "//") {
		return false
	}
	if strings.Contains(path, "//") || strings.Contains(path, `\`) {
		return true
	}
	for segment := range strings.SplitSeq(path, "/") {
		if ambiguousSegment(segment) {
			return true
		}
	}
	return false
}

func ambiguousSegment(segment string) bool {
	dots, onlyDots := 0, true
	for i := 0; i < len(segment); i++ {
		c := segment[i]
		if c == '%' && i+2 < len(segment) {
			c = unhex(segment[i+1])<<4 | unhex(segment[i+2])
			i += 2
			if c == '/' || c == '\\' || c == 0 {
				return true
			}
		}
		switch {
		case c == ';':
			if onlyDots && dots > 0 && dots <= 2 {
				return true
			}
			onlyDots = false
		case c == '.':
			dots++
		default:
			onlyDots = false
		}
	}
	return onlyDots && dots > 0 && dots <= 2
}
