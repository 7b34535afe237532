package httpproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestCurl has curl's own ways to send, where it is installed.
func TestCurl(t *testing.T) {
	testutil.NeedPrograms(t, "curl")
	file := filepath.Join(t.TempDir(), "file")
	content := strings.Repeat("0123456789", 300_000)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newProxy(t, httpServer(t, echo), Limits{})
	for _, tt := range []struct {
		name string
		args []string
		want string // the end of the output
	}{
		{"plain", nil, " / "},
		{"HTTP/1.0", []string{"--http1.0"}, " / "},
		{"h2c upgrade", []string{"--http2"}, " / "},
		{"upload, with Expect", []string{"-T", file, "-H", "Expect: 100-continue"}, "/file " + content},
		{"upload in chunks", []string{"-T", file, "-H", "Transfer-Encoding: chunked"}, "/file " + content},
		{"form", []string{"-F", "a=@" + file}, "--\r\n"},
		{"two on one connection", []string{p.url() + "/a"}, " / "},
		{"HEAD", []string{"-I"}, "\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := exec.Command("curl", append(append([]string{"--silent", "--show-error", "--fail", "--noproxy", "*"}, tt.args...), p.url()+"/")...).Output()
			if err != nil || !strings.HasSuffix(string(out), tt.want) {
				t.Errorf("curl: %v, %d bytes, end %.100q; want %.100q", err, len(out), out[max(0, len(out)-100):], tt.want)
			}
		})
	}
	t.Run("HTTP/2 at once", func(t *testing.T) {
		out, err := exec.Command("curl", "--silent", "--show-error", "--http2-prior-knowledge", "--noproxy", "*", "--max-time", "10", p.url()+"/").CombinedOutput()
		if err == nil || strings.Contains(string(out), "timed out") {
			t.Errorf("curl: %v, %s; want an error at once", err, out)
		}
		if records := p.recorded(); records[len(records)-1].Reason != ReasonHTTP2 {
			t.Errorf("recorded: %v", records[len(records)-1])
		}
	})
}
