package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// versioned is the part of a value that every version has.
type versioned struct {
	Version *int `json:"version"`
}

// Encode returns the JSON object that value is, with the version of its form as first field. The version grows when an
// agent that does not know the new form would do harm; a field that it may leave out of account needs none.
func Encode(version int, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode a value of the store: %w", err)
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(text, &own); err != nil || own == nil {
		return nil, fmt.Errorf("encode a value of the store: a %T is no JSON object", value)
	}
	for name := range own {
		if bytes.EqualFold([]byte(name), []byte("version")) {
			return nil, fmt.Errorf("encode a value of the store: a %T has a field %q of its own", value, name)
		}
	}
	head := strconv.AppendInt([]byte(`{"version":`), int64(version), 10)
	if len(own) > 0 {
		head = append(head, ',')
	}
	return append(head, text[1:]...), nil
}

// Decode returns the entry's value. Fields that T does not have are passed over. A version above known is [ErrVersion],
// which says so and leaves the entry alone: it is for a later agent to understand.
func Decode[T any](entry Entry, known int) (value T, err error) {
	head := firstField(entry.Value)
	if head.Version == nil {
		err = json.Unmarshal(entry.Value, &head)
	}
	if err == nil && (head.Version == nil || *head.Version < 1) {
		err = errors.New("it has no version")
	}
	if err == nil && *head.Version > known {
		err = fmt.Errorf("%w: it has version %d, this one knows up to %d", ErrVersion, *head.Version, known)
	}
	if err == nil {
		err = json.Unmarshal(entry.Value, &value)
	}
	if err != nil {
		var none T
		return none, fmt.Errorf("value of %s: %w", entry.Key, err)
	}
	return value, nil
}

// firstField reads the version where Encode writes it: to look for it in all of the value takes as long as to decode that.
func firstField(value []byte) (head versioned) {
	rest, ok := bytes.CutPrefix(value, []byte(`{"version":`))
	end := bytes.IndexAny(rest, ",}")
	if !ok || end < 0 {
		return head
	}
	if n, err := strconv.Atoi(string(rest[:end])); err == nil {
		head.Version = &n
	}
	return head
}
