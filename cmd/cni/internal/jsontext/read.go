package jsontext

import (
	"errors"
	"strconv"
)

// The faults of a value's type, in words that complete "socket: ".
var (
	errObject  = errors.New("want an object")
	errArray   = errors.New("want a list")
	errString  = errors.New("want a string")
	errInteger = errors.New("want a whole number")
	errBool    = errors.New("want true or false")
)

// Check returns an error when the text is not one JSON value.
func Check(text []byte) error {
	s := scanner{text: text}
	if _, err := s.value(0); err != nil {
		return err
	}
	if !s.atEnd() {
		return errSyntax
	}
	return nil
}

// Fields calls visit for each member of an object. The text may be anything; visit sees nothing before the whole of
// it has been found to be JSON.
func Fields(text []byte, visit func(key string, value []byte) error) error {
	if err := Check(text); err != nil {
		return err
	}
	s := scanner{text: text}
	if s.peek() != '{' {
		return errObject
	}
	return s.object(0, visit)
}

// Items calls visit for each element of an array.
func Items(text []byte, visit func(value []byte) error) error {
	if err := Check(text); err != nil {
		return err
	}
	s := scanner{text: text}
	if s.peek() != '[' {
		return errArray
	}
	return s.array(0, visit)
}

// Strings reads an array of strings.
func Strings(value []byte) (list []string, err error) {
	err = Items(value, func(value []byte) error {
		item, err := String(value)
		list = append(list, item)
		return err
	})
	return list, err
}

// String reads a string.
func String(value []byte) (string, error) {
	if len(value) < 2 || value[0] != '"' {
		return "", errString
	}
	return unquote(value), nil
}

// Int reads a whole number.
func Int(value []byte) (int, error) {
	n, err := strconv.Atoi(string(value))
	if err != nil {
		return 0, errInteger
	}
	return n, nil
}

// Bool reads true or false.
func Bool(value []byte) (bool, error) {
	switch string(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errBool
}

// IsNull tells whether the value is null.
func IsNull(value []byte) bool { return string(value) == "null" }

// Text reads a string and what it stands for: an address, a time.
func Text[T any](value []byte, parse func(string) (T, error)) (T, error) {
	text, err := String(value)
	if err != nil {
		var none T
		return none, err
	}
	return parse(text)
}
