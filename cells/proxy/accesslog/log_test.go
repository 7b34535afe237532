package accesslog

import (
	"strings"
	"testing"
	"time"
)

// add adds requests of one endpoint at one time.
func add(l *Log, n int, endpoint uint16, verdict Verdict, at time.Time) {
	for range n {
		l.Add(Request{Time: at, Endpoint: endpoint, Verdict: verdict})
	}
}

// TestFlood: what one endpoint asks for hides neither what others do, nor its own denied requests, and is counted.
func TestFlood(t *testing.T) {
	var l Log
	at := time.Unix(100, 0)
	add(&l, 10_000, 1, Allowed, at)
	add(&l, 5, 2, Allowed, at)
	add(&l, 7, 1, Denied, at)
	requests, lost := l.Read()
	if want := PerEndpoint + 5 + 7; len(requests) != want || lost != 10_000-PerEndpoint {
		t.Errorf("%d requests are kept, and %d lost; want %d and %d", len(requests), lost, want, 10_000-PerEndpoint)
	}
	for _, later := range []time.Duration{time.Second, -time.Hour} { // the clock is set back
		add(&l, 1, 1, Allowed, at.Add(later))
		if requests, lost := l.Read(); len(requests) != 1 || lost != 0 {
			t.Errorf("%s later: %d requests, %d lost, want the one", later, len(requests), lost)
		}
	}
}

// TestAppendClips: what another process has read is kept no longer than one's own.
func TestAppendClips(t *testing.T) {
	var l Log
	long := strings.Repeat("x", 1<<20)
	own := NewHTTP(long, long, long, 200)
	l.Append([]Request{{HTTP: &HTTP{Method: long, Host: long, Path: long, Status: 200}}, {DNS: &DNS{Name: long}}, {HTTP: own}}, 0)
	requests, _ := l.Read()
	if *requests[0].HTTP != *own || *requests[2].HTTP != *own || len(requests[1].DNS.Name) > 2*maxText {
		t.Errorf("kept: %d, %d and %d letters", len(requests[0].HTTP.Path), len(requests[1].DNS.Name), len(requests[2].HTTP.Path))
	}
}

// TestUnread has no reader, as while no agent runs.
func TestUnread(t *testing.T) {
	var l Log
	at := time.Unix(100, 0)
	const seconds = 50
	for i := range seconds {
		add(&l, PerEndpoint, 1, Allowed, at.Add(time.Duration(i)*time.Second))
	}
	l.Append(make([]Request, 3), 2)
	requests, lost := l.Read()
	if want := uint64(seconds*PerEndpoint - maxUnread + 3 + 2); len(requests) != maxUnread || lost != want || !requests[0].Time.Equal(at) {
		t.Errorf("%d requests from %v on, %d lost, want the first %d, and %d lost", len(requests), requests[0].Time, lost, maxUnread, want)
	}
}

// TestNewHTTP leaves out what may be secret, and what is long.
func TestNewHTTP(t *testing.T) {
	long := strings.Repeat("é", 1000)
	for path, want := range map[string]string{
		"/a": "/a", "/login?token=secret": "/login", "": "", "*": "*",
		"/" + long: "/" + strings.Repeat("é", (maxText-1)/2) + "…",
	} {
		if got := NewHTTP("GET", "h", path, 200); *got != (HTTP{"GET", "h", want, 200}) {
			t.Errorf("path %.40q: %+v, want the path %.40q", path, got, want)
		}
	}
	if got := NewHTTP(long, long, "/", 0); len(got.Method) > maxMethod+3 || len(got.Host) > maxText+3 {
		t.Errorf("method of %d bytes, host of %d", len(got.Method), len(got.Host))
	}
}

func BenchmarkAdd(b *testing.B) {
	var l Log
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l.Add(Request{Time: time.Unix(int64(i/PerEndpoint), 0), Endpoint: 1, HTTP: NewHTTP("GET", "api.example", "/v1/things", 200), Verdict: Allowed})
		if i%PerEndpoint == 0 {
			l.Read()
		}
	}
}
