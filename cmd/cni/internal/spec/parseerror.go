package spec

import (
	"unicode/utf8"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// ParseError reads an error as a plugin prints it. It is none without a code and a message.
func ParseError(text []byte) (*Error, bool) {
	var e Error
	err := jsontext.Fields(text, func(key string, value []byte) (err error) {
		switch {
		case jsontext.IsNull(value):
		case key == "code":
			var code int
			code, err = jsontext.Int(value)
			e.Code = Code(code)
		case key == "msg":
			e.Msg, err = jsontext.String(value)
		case key == "details":
			e.Hint, err = jsontext.String(value)
		}
		return err
	})
	e.Msg, e.Hint = bounded(e.Msg), bounded(e.Hint)
	return &e, err == nil && e.Code > 0 && e.Msg != ""
}

// maxText bounds what is passed on of an error's text: it goes into events and logs.
const maxText = 4096

// bounded cuts at the end of a character.
func bounded(text string) string {
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
