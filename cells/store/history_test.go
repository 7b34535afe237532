package store

import (
	"errors"
	"fmt"
	"testing"
)

func change(revision int64, bytes int) Event {
	return Event{Type: Put, Entry: Entry{Key: fmt.Sprintf("k/%d", revision%2), Value: make([]byte, bytes)}, revision: revision}
}

func TestHistoryBounds(t *testing.T) {
	for name, bytes := range map[string]int{"many": 0, "large": maxValue} {
		h := newHistory(10)
		for revision := int64(11); revision < 11+3*historyEvents; revision++ {
			h.add(revision, change(revision, bytes))
			if len(h.events) > historyEvents || h.bytes > historyBytes {
				t.Fatalf("%s: %d events of %d bytes", name, len(h.events), h.bytes)
			}
		}
		if _, _, _, err := h.since(10, ""); !errors.Is(err, errGone) {
			t.Errorf("%s: the oldest: %v", name, err)
		}
		events, upto, _, err := h.since(h.from, "")
		if err != nil || len(events) != len(h.events) || upto != h.to {
			t.Errorf("%s: %d events up to %d, %v", name, len(events), upto, err)
		}
		h.forget(h.to)
		if len(h.events) != 0 || h.bytes != 0 {
			t.Errorf("%s: %d events of %d bytes are left", name, len(h.events), h.bytes)
		}
	}
}

func TestHistoryWithoutEventOfPrefix(t *testing.T) {
	h := newHistory(10)
	_, _, more, err := h.since(10, "k/0/")
	if err != nil {
		t.Fatal(err)
	}
	h.add(11, change(11, 1))
	<-more
	events, upto, _, err := h.since(10, "k/0/")
	if len(events) != 0 || upto != 11 || err != nil {
		t.Errorf("%d events up to %d, %v", len(events), upto, err)
	}
	if _, _, _, err := h.since(12, ""); !errors.Is(err, errGone) {
		t.Errorf("the future: %v", err)
	}
}

func TestHistoryFail(t *testing.T) {
	h, broken := newHistory(10), errors.New("broken")
	h.add(11, change(11, 1))
	h.fail(broken)
	if events, _, _, err := h.since(10, ""); len(events) != 1 || err != nil {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, _, _, err := h.since(11, ""); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
