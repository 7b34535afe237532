package records

import (
	"encoding"
	"hash/crc32"
	"reflect"
)

// shapeOf returns a number that differs for types whose JSON has other fields.
func shapeOf[T any]() uint32 { return crc32.ChecksumIEEE([]byte(fieldsOf(reflect.TypeFor[T]()))) }

func fieldsOf(t reflect.Type) string {
	switch {
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return t.Kind().String() + " " + fieldsOf(t.Elem())
	case t.Kind() == reflect.Map:
		return "map " + fieldsOf(t.Key()) + " " + fieldsOf(t.Elem())
	case t.Kind() == reflect.Struct:
		text := "{"
		for i := range t.NumField() {
			if f := t.Field(i); f.Tag.Get("json") != "-" {
				text += f.Name + " " + f.Tag.Get("json") + " " + fieldsOf(f.Type) + ";"
			}
		}
		return text + "}"
	}
	return t.Kind().String()
}
