package jsontext

import (
	"strconv"
	"unicode/utf8"
)

// Writer puts a text together. Commas are its own business; that each Open is closed is the caller's.
type Writer struct {
	text  []byte
	comma bool // something stands before the next member or element
}

// Bytes is the text so far.
func (w *Writer) Bytes() []byte { return w.text }

func (w *Writer) next() {
	if w.comma {
		w.text = append(w.text, ',')
	}
	w.comma = true
}

// Open begins an object or an array, '{' or '['.
func (w *Writer) Open(bracket byte) {
	w.next()
	w.text = append(w.text, bracket)
	w.comma = false
}

// Close ends one, '}' or ']'.
func (w *Writer) Close(bracket byte) {
	w.text = append(w.text, bracket)
	w.comma = true
}

// Key begins a member: a value follows.
func (w *Writer) Key(key string) {
	w.next()
	w.text = appendString(w.text, key)
	w.text = append(w.text, ':')
	w.comma = false
}

// String is a value.
func (w *Writer) String(value string) {
	w.next()
	w.text = appendString(w.text, value)
}

// Int is a value.
func (w *Writer) Int(value int64) {
	w.next()
	w.text = strconv.AppendInt(w.text, value, 10)
}

// Raw is a value that is JSON already.
func (w *Writer) Raw(value []byte) {
	w.next()
	w.text = append(w.text, value...)
}

// Field is a member that is a string.
func (w *Writer) Field(key, value string) {
	w.Key(key)
	w.String(value)
}

// OptField is Field, unless the value is empty.
func (w *Writer) OptField(key, value string) {
	if value != "" {
		w.Field(key, value)
	}
}

// OptInt is a member that is a number, unless it is zero.
func (w *Writer) OptInt(key string, value int64) {
	if value != 0 {
		w.Key(key)
		w.Int(value)
	}
}

func appendString(text []byte, s string) []byte {
	const digits = "0123456789abcdef"
	text = append(text, '"')
	for _, r := range s { // what is not UTF-8 becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			text = append(text, '\\', byte(r))
		case r < ' ':
			text = append(text, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			text = utf8.AppendRune(text, r)
		}
	}
	return append(text, '"')
}
