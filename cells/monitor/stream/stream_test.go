package stream

import (
	"context"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
)

func ringOf(size, records int) *Ring[int] {
	r := NewRing[int](size)
	for i := range records {
		r.Add(i + 1)
	}
	return r
}

func TestReader(t *testing.T) {
	for _, row := range []struct {
		name          string
		since         uint64
		want          []int
		first, missed uint64
	}{
		{"from the beginning, which the ring has lost", 0, []int{4, 5, 6}, 4, 0},
		{"with a gap", 1, []int{4, 5, 6}, 4, 2},
		{"without a gap", 4, []int{5, 6}, 5, 0},
		{"nothing is new", 6, nil, 0, 0},
		{"a number of an earlier agent", 7, []int{4, 5, 6}, 4, 0},
	} {
		reader := ringOf(3, 6).NewReader(row.since)
		if got := reader.UpTo(6); !slices.Equal(got, row.want) || reader.First != row.first || reader.Missed != row.missed {
			t.Errorf("%s: records %v from %d on, %d missed; want %v from %d on, %d missed", row.name, got, reader.First, reader.Missed, row.want, row.first, row.missed)
		}
		if got := reader.UpTo(6); len(got) > 0 {
			t.Errorf("%s: records %v were read twice", row.name, got)
		}
	}
}

func TestReaderUpTo(t *testing.T) {
	reader := ringOf(10, 6).NewReader(2)
	if got := reader.UpTo(4); !slices.Equal(got, []int{3, 4}) {
		t.Errorf("up to 4: %v, want 3 and 4", got)
	}
	if got := reader.UpTo(6); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("up to 6: %v, want 5 and 6", got)
	}
}

func TestReaderNextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := ringOf(3, 1)
		reader := ring.NewReader(1)
		var got [][]int
		go func() {
			for batch := reader.Next(t.Context()); len(batch) > 0; batch = reader.Next(t.Context()) {
				got = append(got, slices.Clone(batch))
			}
			got = append(got, nil)
		}()
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("read %v, and there is nothing new", got)
		}
		ring.Add(2)
		synctest.Wait()
		ring.Close()
		synctest.Wait()
		if len(got) != 2 || !slices.Equal(got[0], []int{2}) || got[1] != nil {
			t.Errorf("read %v, want record 2, and then the end of the closed ring", got)
		}
	})
}

func TestServe(t *testing.T) {
	format := Format[int]{
		Line: func(seq uint64, record *int) any {
			if *record == 5 {
				return nil // not asked for
			}
			return []uint64{seq, uint64(*record)}
		},
		Missed: func(seq, n uint64) any { return map[string]uint64{"upTo": seq, "missed": n} },
	}
	w := httptest.NewRecorder()
	ringOf(3, 6).Serve(w, httptest.NewRequest("GET", "/", nil), Query{Since: 1}, format, context.Background())
	if got, want := w.Body.String(), "{\"missed\":2,\"upTo\":3}\n[4,4]\n[6,6]\n"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}

func TestParseQuery(t *testing.T) {
	q, err := ParseQuery(url.Values{"since": {"7"}, "follow": {"true"}}, "a record")
	if want := (Query{Since: 7, Follow: true}); err != nil || q != want {
		t.Errorf("query %+v, error %v, want %+v", q, err, want)
	}
	for _, text := range []string{"since=-1", "since=x", "follow=perhaps"} {
		values, _ := url.ParseQuery(text)
		if _, err := ParseQuery(values, "a record"); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
