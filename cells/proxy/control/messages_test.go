package control

import (
	"encoding/json"
	"os"
	"testing"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

func TestChooseProtocol(t *testing.T) {
	for _, row := range []struct{ oldest, newest, want int }{
		{1, 1, 1}, {1, 7, 1}, {2, 3, 0}, {0, 0, 0},
	} {
		got, err := chooseProtocol(hello{Oldest: row.oldest, Newest: row.newest})
		if got != row.want || (err != nil) != (row.want == 0) || err != nil && fault.KindOf(err) != fault.Conflict {
			t.Errorf("an end that speaks %d to %d: %d, %v; want %d", row.oldest, row.newest, got, err, row.want)
		}
	}
}

// TestDecodeLaterRules: rules with a condition that this version does not know are rejected, not applied without it.
func TestDecodeLaterRules(t *testing.T) {
	known, err := json.Marshal(model.Layer7{HTTP: []model.HTTPRule{{Method: "GET"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := snapshot{Rules: map[uint32]json.RawMessage{1: known, 2: json.RawMessage(`{"HTTP":[{"Method":"GET","Query":"x"}]}`), 3: json.RawMessage(`1`)}}
	rules, rejected := s.decode()
	if len(rules) != 1 || rules[1].HTTP[0].Method != "GET" || len(rejected) != 2 || rejected[2] == "" || rejected[3] == "" {
		t.Errorf("rules %v, rejected %v", rules, rejected)
	}
}

func TestSocketsOf(t *testing.T) {
	open := func(n int) (files []*os.File) {
		for range n {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
			files = append(files, r)
		}
		t.Cleanup(func() { closeFiles(files) })
		return files
	}
	m := message{files: open(3)}
	sockets, err := socketsOf(&m, []uint32{4, 7})
	if err != nil || len(sockets) != 2 || sockets[7] == nil || len(m.files) != 1 {
		t.Errorf("sockets %v, %d files are left, %v", sockets, len(m.files), err)
	}
	for name, indexes := range map[string][]uint32{"too many indexes": {1, 2, 3}, "one index twice": {1, 1}} {
		m := message{files: open(2)}
		if _, err := socketsOf(&m, indexes); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
