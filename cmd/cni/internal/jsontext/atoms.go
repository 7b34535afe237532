package jsontext

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// str moves past a string.
func (s *scanner) str() error {
	if s.pos >= len(s.text) || s.text[s.pos] != '"' {
		return errSyntax
	}
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c < ' ':
			return errSyntax
		case c == '\\':
			s.pos++
			if err := s.escape(); err != nil {
				return err
			}
		}
	}
	return errSyntax
}

// escape checks what follows a backslash, and stops at its last byte.
func (s *scanner) escape() error {
	if s.pos >= len(s.text) {
		return errSyntax
	}
	switch s.text[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		if _, ok := hex4(s.text[s.pos+1:]); ok {
			s.pos += 4
			return nil
		}
	}
	return errSyntax
}

// number moves past a number.
func (s *scanner) number() error {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return errSyntax
	}
	if s.skip('.') && !s.digits() {
		return errSyntax
	}
	if s.skip('e') || s.skip('E') {
		_ = s.skip('+') || s.skip('-')
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

// skip moves past the byte if it is the very next.
func (s *scanner) skip(c byte) bool {
	if s.pos >= len(s.text) || s.text[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

// digits moves past at least one digit.
func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.text) && isDigit(s.text[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

// unquote is the meaning of a string that str has moved past.
func unquote(quoted []byte) string {
	body := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(body, '\\') < 0 {
		return valid(body)
	}
	var out []byte
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' {
			out = append(out, body[i])
			continue
		}
		i++
		switch c := body[i]; c {
		case 'u':
			r, size := unicodeEscape(body[i+1:])
			out = utf8.AppendRune(out, r)
			i += size
		default:
			out = append(out, plainEscape(c))
		}
	}
	return valid(string(out))
}

// valid puts U+FFFD for each byte that is not UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

func plainEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unicodeEscape reads what follows "\u": four digits, or two times four when they are a surrogate pair.
func unicodeEscape(rest string) (r rune, size int) {
	r, _ = hex4([]byte(rest))
	if utf16.IsSurrogate(r) {
		if len(rest) >= 10 && rest[4] == '\\' && rest[5] == 'u' {
			low, _ := hex4([]byte(rest[6:]))
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 10
			}
		}
		return utf8.RuneError, 4
	}
	return r, 4
}

// hex4 reads four hexadecimal digits.
func hex4(text []byte) (r rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
