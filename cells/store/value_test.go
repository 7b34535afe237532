package store_test

import (
	"errors"
	"strings"
	"testing"

	"porin.dev/porin/cells/store"
)

type block struct {
	Prefix string `json:"prefix"`
	Node   string `json:"node,omitempty"`
}

func TestEncodeDecode(t *testing.T) {
	want := block{Prefix: "10.0.0.0/26", Node: "n1"}
	text, err := store.Encode(3, want)
	if err != nil || string(text) != `{"version":3,"prefix":"10.0.0.0/26","node":"n1"}` {
		t.Errorf("%s, %v", text, err)
	}
	got, err := store.Decode[block](store.Entry{Value: text}, 3)
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if text, err := store.Encode(1, struct{}{}); err != nil || string(text) != `{"version":1}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestEncodeNoObject(t *testing.T) {
	for name, value := range map[string]any{
		"number": 1, "list": []int{1}, "nothing": nil, "function": func() {},
		"version of its own": map[string]int{"version": 1}, "another spelling": struct{ Version string }{"1"},
	} {
		if text, err := store.Encode(1, value); err == nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"version":1,"prefix":"p","later":[1]}`: "",
		`{"version":2,"prefix":"p"}`:             "",
		`{"version":3,"prefix":7}`:               "another version of Porin: it has version 3, this one knows up to 2",
		`{"version":0}`:                          "it has no version",
		`{"prefix":"p"}`:                         "it has no version",
		`{"version":"1"}`:                        "cannot unmarshal",
		`{"version":1,"prefix":7}`:               "cannot unmarshal",
		``:                                       "unexpected end",
		`null`:                                   "it has no version",
	} {
		got, err := store.Decode[block](store.Entry{Key: "blocks/b", Value: []byte(text)}, 2)
		if want == "" && (err != nil || got.Prefix != "p") {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "blocks/b")) {
			t.Errorf("%s: error %v", text, err)
		}
		if another := strings.Contains(want, "another version"); errors.Is(err, store.ErrVersion) != another {
			t.Errorf("%s: error %v", text, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"prefix":"p"}`))
	f.Add([]byte(`{"version":1,"VERSION":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := store.Decode[block](store.Entry{Key: "k", Value: text}, 1)
		if err != nil {
			return
		}
		again, err := store.Encode(1, got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := store.Decode[block](store.Entry{Value: again}, 1); err != nil || back != got {
			t.Errorf("%+v became %+v, %v", got, back, err)
		}
	})
}
