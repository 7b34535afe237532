package jsontext

import "errors"

// The faults of a text.
var (
	errSyntax = errors.New("not JSON")
	errDepth  = errors.New("nested too deep")
)

// maxDepth bounds the recursion.
const maxDepth = 200

// scanner walks over a text.
type scanner struct {
	text []byte
	pos  int
}

// peek is the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take moves past the byte if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.pos >= len(s.text) {
		return false
	}
	s.pos++
	return true
}

// atEnd tells whether nothing but white space is left.
func (s *scanner) atEnd() bool { return s.peek() == 0 && s.pos >= len(s.text) }

// value moves past the next value and returns its text.
func (s *scanner) value(depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	c, start := s.peek(), s.pos
	var err error
	switch {
	case c == '{':
		err = s.object(depth, nil)
	case c == '[':
		err = s.array(depth, nil)
	case c == '"':
		err = s.str()
	case c == '-' || isDigit(c):
		err = s.number()
	default:
		err = s.literal()
	}
	return s.text[start:s.pos], err
}

// object moves past an object; visit may be nil.
func (s *scanner) object(depth int, visit func(key string, value []byte) error) error {
	if !s.take('{') {
		return errSyntax
	}
	if s.take('}') {
		return nil
	}
	for {
		s.peek()
		start := s.pos
		if err := s.str(); err != nil {
			return err
		}
		key := s.text[start:s.pos]
		if !s.take(':') {
			return errSyntax
		}
		value, err := s.value(depth + 1)
		if err != nil {
			return err
		}
		if visit != nil {
			if err := visit(unquote(key), value); err != nil {
				return err
			}
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

// array moves past an array; visit may be nil.
func (s *scanner) array(depth int, visit func(value []byte) error) error {
	if !s.take('[') {
		return errSyntax
	}
	if s.take(']') {
		return nil
	}
	for {
		value, err := s.value(depth + 1)
		if err != nil {
			return err
		}
		if visit != nil {
			if err := visit(value); err != nil {
				return err
			}
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return errSyntax
		}
	}
}

func (s *scanner) literal() error {
	for _, word := range []string{"true", "false", "null"} {
		if rest := s.text[s.pos:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
			s.pos += len(word)
			return nil
		}
	}
	return errSyntax
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
