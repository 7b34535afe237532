package jsontext

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// decode is what encoding/json would make of a text, by means of this package.
func decode(t *testing.T, text []byte) any {
	t.Helper()
	s := scanner{text: text}
	switch s.peek() {
	case '{':
		object := map[string]any{}
		if err := Fields(text, func(key string, value []byte) error { object[key] = decode(t, value); return nil }); err != nil {
			t.Fatal(err)
		}
		return object
	case '[':
		array := []any{}
		if err := Items(text, func(value []byte) error { array = append(array, decode(t, value)); return nil }); err != nil {
			t.Fatal(err)
		}
		return array
	case '"':
		str, err := String(bytes.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		return str
	}
	var other any
	_ = json.Unmarshal(text, &other)
	return other
}

// FuzzAgainstEncodingJSON holds the reader, and the writer of strings, against the standard library.
func FuzzAgainstEncodingJSON(f *testing.F) {
	for _, seed := range []string{
		`{"cniVersion":"1.1.0","name":"porin","mtu":1400,"dns":{"nameservers":["10.0.0.10"]},"x":[{},[],true,false,null,-1.5e+3]}`,
		`"\u00e9\ud83d\ude00\ud83d\"\\\/\b\f\n\r\t"`, " [ 1 , 2 ] ", `{"a":1,"a":2}`, `01`, `{"a":}`, `[1,]`, `"` + "\x01", `nul`, `-`, `1.`, `1e`, "\xff", "\"\xff\"", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		valid := Check(text) == nil
		if want := json.Valid(text); valid != want && bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) < maxDepth {
			t.Fatalf("valid = %v, encoding/json says %v: %q", valid, want, text)
		}
		if !valid {
			return
		}
		var want any
		if err := json.Unmarshal(text, &want); err != nil {
			return // a number out of range
		}
		if got := decode(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %#v, want %#v", text, got, want)
		}
		var w Writer
		w.String(string(text))
		var back string
		if err := json.Unmarshal(w.Bytes(), &back); err != nil || back != string([]rune(string(text))) {
			t.Errorf("%q was written as %q: %v", text, w.Bytes(), err)
		}
	})
}

func TestWriterSetsCommas(t *testing.T) {
	var w Writer
	w.Open('{')
	w.Field("a", "x\"\n")
	w.OptField("none", "")
	w.OptInt("zero", 0)
	w.Key("list")
	w.Open('[')
	w.Int(1)
	w.Open('{')
	w.Close('}')
	w.Raw([]byte("null"))
	w.Close(']')
	w.OptInt("n", -7)
	w.Close('}')
	if got, want := string(w.Bytes()), `{"a":"x\"\u000a","list":[1,{},null],"n":-7}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestReaderNamesWhatItWants(t *testing.T) {
	_, errString := String([]byte("1"))
	_, errInt := Int([]byte("1.5"))
	_, errList := Strings([]byte(`["a",1]`))
	for err, want := range map[error]string{
		Fields([]byte("[]"), nil):                "want an object",
		Items([]byte("{}"), nil):                 "want a list",
		errString:                                "want a string",
		errInt:                                   "want a whole number",
		errList:                                  "want a string",
		Check([]byte(strings.Repeat("[", 1000))): "nested too deep",
		Check([]byte(`{} {}`)):                   "not JSON",
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %q", err, want)
		}
	}
}
