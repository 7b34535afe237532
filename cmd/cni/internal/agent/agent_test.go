package agent

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "porin.dev/porin/api/v1"
)

var comparable = cmp.Options{cmpopts.EquateComparable(netip.Addr{})}

func TestRequestsAreWrittenAsEncodingJSONWould(t *testing.T) {
	full := v1.EndpointRequest{
		Network: "porin", Pod: v1.Pod{Namespace: "a", Name: "b\"\x01é", UID: "c", PriorityClass: "high"}, NetNS: "/run/x",
		Host: v1.Interface{Name: "por0", Index: 7, MAC: "02:00:00:00:00:01"}, Container: v1.Interface{Name: "eth0", MAC: "02:00:00:00:00:02"},
		Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.0.0.1"), IPv6: netip.MustParseAddr("fd00::1")},
		Pool:      "blue", Reservation: "a\"b", ExternalIPAM: true, Began: 1234567890123,
	}
	half := full
	half.Pod, half.Addresses.IPv4, half.ExternalIPAM, half.Began = v1.Pod{UID: "c"}, netip.Addr{}, false, 0
	for _, request := range []v1.EndpointRequest{{}, half, full} {
		writtenAsByEncodingJSON(t, encodeRequest(request), request)
	}
	for _, request := range []v1.GCRequest{
		{Valid: []string{}}, {Network: "porin", Valid: []string{"c1:eth0", "c2:a\"b"}, Began: 1234567890123, DryRun: true},
	} {
		writtenAsByEncodingJSON(t, encodeGCRequest(request), request)
	}
}

func writtenAsByEncodingJSON(t *testing.T, got []byte, value any) {
	t.Helper()
	want, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAnswersAreReadAsEncodingJSONWrites(t *testing.T) {
	want := v1.Endpoint{
		ID: 65535, ContainerID: "c1", IfName: "eth0", State: "ready",
		Host: v1.Interface{Name: "por0", Index: 7, MAC: "02:00:00:00:00:01"}, Container: v1.Interface{Name: "eth0", MAC: "02:00:00:00:00:02"},
		Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.0.0.1")}, Gateways: v1.Addresses{IPv4: v1.GatewayIPv4, IPv6: v1.GatewayIPv6},
		Created: time.Date(2026, 11, 20, 1, 2, 3, 456789, time.UTC),
	}
	more := want
	more.Network, more.Pod, more.Traffic = "porin", v1.Pod{Name: "p"}, &v1.Traffic{Drops: map[string]uint64{"policy": 1}}
	text, err := json.Marshal(more)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeEndpoint(text)
	if diff := cmp.Diff(want, got, comparable); diff != "" || err != nil {
		t.Errorf("endpoint (-want +got), %v:\n%s", err, diff)
	}
	wantResult := v1.DeleteResult{Deleted: 2, Spared: 3, Errors: 1, Details: []string{"a"}}
	text, _ = json.Marshal(wantResult)
	if got, err := decodeDeleteResult(text); !cmp.Equal(wantResult, got) || err != nil {
		t.Errorf("result = %+v, %v", got, err)
	}
	text, _ = json.Marshal(v1.Status{
		Version: "v1", Ready: true, Datapath: v1.Datapath{Programs: []v1.Program{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		Resources: []v1.Resource{{Name: "plates", Used: 7, Capacity: 9, Reason: "few", ExhaustedIn: time.Hour}, {Name: "cups", Available: true}},
	})
	wantStatus := v1.Status{
		Ready: true, Datapath: v1.Datapath{Programs: make([]v1.Program, 3)},
		Resources: []v1.Resource{{Name: "plates", Reason: "few", ExhaustedIn: time.Hour}, {Name: "cups", Available: true}},
	}
	status, err := decodeStatus(text)
	if diff := cmp.Diff(wantStatus, status, comparable); diff != "" || err != nil {
		t.Errorf("status (-want +got), %v:\n%s", err, diff)
	}
	wantGC := v1.GCResult{Stale: []string{"c1:eth0"}, Deleted: 1, Errors: 2, Details: []string{"a"}, Withheld: "b"}
	text, _ = json.Marshal(wantGC)
	if got, err := decodeGCResult(text); !cmp.Equal(wantGC, got) || err != nil {
		t.Errorf("garbage = %+v, %v", got, err)
	}
	text, _ = json.Marshal(v1.Doctor{Findings: []v1.Finding{{Kind: "a", Owner: "b", Subject: "c", Detail: "d", Times: 2}}, Errors: []string{"e"}})
	if got, err := decodeFindings(text); !cmp.Equal([]v1.Finding{{Kind: "a", Subject: "c", Detail: "d"}}, got) || err != nil {
		t.Errorf("findings = %+v, %v", got, err)
	}
}

func TestProblemsKeepCodeAndDetail(t *testing.T) {
	want := v1.Problem{Title: "Conflict", Status: 409, Code: v1.CodeConflict, Detail: "10.0.0.1 is in use"}
	text, _ := json.Marshal(want)
	got, ok := errors.AsType[*v1.Problem](problem(answer{409, text}))
	if !ok || *got != want {
		t.Errorf("problem = %+v", got)
	}
	for _, body := range []string{"", "<html>", `{"detail":7}`, `{}`} {
		got, ok := errors.AsType[*v1.Problem](problem(answer{502, []byte(body)}))
		if !ok || got.Code != v1.CodeInternal || !strings.Contains(got.Detail, "status 502") {
			t.Errorf("%q: problem = %+v", body, got)
		}
	}
}

// readAll takes an answer in by pieces of at most that many bytes.
func readAll(text string, size, limit int) (answer, error) {
	var in reader
	source := iotest.OneByteReader(strings.NewReader(text))
	for buf := make([]byte, size); ; {
		n := 0
		for n < size {
			m, err := source.Read(buf[n:])
			n += m
			if err != nil {
				break
			}
		}
		if done, err := in.take(buf[:n], limit); done || err != nil {
			return in.answer, err
		}
	}
}

func TestAnswersComeInAnyPieces(t *testing.T) {
	for _, c := range []struct {
		name, text, body string
		status           int
		err              error
	}{
		{"with its length", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "{}", 200, nil},
		{"with more than its length", "HTTP/1.0 200 OK\r\ncontent-LENGTH:2\r\n\r\n{}junk", "{}", 200, nil},
		{"until the end", "HTTP/1.0 404 Not Found\r\nX: y\r\n\r\n{\"a\":1}", `{"a":1}`, 404, nil},
		{"without a body", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "", 204, nil},
		{"nothing", "", "", 0, ErrUnreachable},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", "", 0, ErrUnreachable},
		{"half a body", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "", 0, ErrUnreachable},
		{"in chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "", 0, ErrAnswer},
		{"no HTTP", "SSH-2.0-OpenSSH_9\r\n\r\n", "", 0, ErrAnswer},
		{"two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "", 0, ErrAnswer},
		{"a negative length", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}", "", 0, ErrAnswer},
		{"too long", "HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n{}", "", 0, ErrAnswer},
		{"too long until the end", "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 101), "", 0, ErrAnswer},
		{"too long a head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead), "", 0, ErrAnswer},
	} {
		for _, size := range []int{1, 7, 4096} {
			got, err := readAll(c.text, size, 100)
			if !errors.Is(err, c.err) || err == nil && (got.status != c.status || string(got.body) != c.body) {
				t.Errorf("%s, by %d: %d %q, %v, want %d %q, %v", c.name, size, got.status, got.body, err, c.status, c.body, c.err)
			}
		}
	}
}

// FuzzAnswer reads foreign bytes as answers: no panic, no endless loop, and never more than the limit.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 3)
	f.Add("HTTP/1.0 500 X\r\n\r\n{\"detail\":\"x\",\"code\":\"y\"}", 1)
	f.Add("HTTP/1.1 200 OK\r\n\r\n"+`{"id":1,"addresses":{"ipv4":"10.0.0.1"},"created":"2026-11-20T00:00:00Z","datapath":{"programs":[{}]},"resources":[{"exhaustedIn":1}]}`, 100)
	f.Add("HTTP/1.1 200 OK\r\n\r\n"+`{"findings":[{"kind":"a"}],"stale":["c1:eth0"],"withheld":"b"}`, 100)
	f.Fuzz(func(t *testing.T, text string, size int) {
		a, err := readAll(text, max(size&0xfff, 1), 1000)
		if err != nil {
			return
		}
		if len(a.body) > 1000 || a.status < 200 || a.status > 599 {
			t.Errorf("answer %d of %d bytes", a.status, len(a.body))
		}
		_, _ = decodeEndpoint(a.body)
		_, _ = decodeDeleteResult(a.body)
		_, _ = decodeStatus(a.body)
		_, _ = decodeGCResult(a.body)
		_, _ = decodeFindings(a.body)
		if problem(a).Error() == "" {
			t.Error("a problem without words")
		}
	})
}
