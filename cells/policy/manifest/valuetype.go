package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// explainType names the field with a value of another type than it has, with its indexes, in place of Go's type.
func explainType(data []byte, err error) error {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || wrong.Field == "" {
		return err
	}
	at := wrong.Field
	name := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	if path, plain := valueAt(data, wrong.Offset); path != nil && strings.Contains("."+plain+".", "."+name+".") { // else the offset points to a part
		at = path.String()
	}
	want := nameOfType(wrong.Type)
	if want == "a string" && wrong.Value != "object" && wrong.Value != "array" {
		want += ", in quotation marks"
	}
	return fmt.Errorf("%s: want %s, not %s", at, want, nameOfValue(wrong.Value))
}

// valueAt returns the path of the value that ends, or of the object or list that begins, at the offset; and the path
// without indexes. It is nil for none.
func valueAt(data []byte, offset int64) (path *field.Path, plain string) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var walk func(at *field.Path, plain string) bool
	walk = func(at *field.Path, names string) bool {
		token, err := decoder.Token()
		if err != nil {
			return true
		}
		if decoder.InputOffset() >= offset {
			path, plain = at, names
			return true
		}
		for i := 0; token == json.Delim('{') || token == json.Delim('['); i++ {
			if !decoder.More() {
				_, err := decoder.Token()
				return err != nil
			}
			child, below := at, names
			if token == json.Delim('{') {
				key, err := decoder.Token()
				if err != nil {
					return true
				}
				name := fmt.Sprint(key)
				child, below = at.Child(name), strings.TrimPrefix(names+"."+name, ".")
			} else {
				child = at.Index(i)
			}
			if walk(child, below) {
				return true
			}
		}
		return false
	}
	walk(nil, "")
	return path, plain
}

func nameOfType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number"
}

func nameOfValue(value string) string {
	kind, number, _ := strings.Cut(value, " ")
	switch {
	case kind == "bool":
		return "true or false"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	case number != "":
		return "the number " + number
	}
	return "a " + kind
}
