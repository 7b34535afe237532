package fleet

import (
	"context"
	"io"
	"strings"
	"testing"
)

// answering writes to stdout and stderr, and ends with an error.
type answering struct {
	Cluster
	stdout, stderr string
	err            error
}

func (a answering) Run(_ context.Context, _ Pod, _ []string, _ io.Reader, stdout, stderr io.Writer) error {
	if _, err := io.WriteString(stderr, a.stderr); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, a.stdout); err != nil {
		return err
	}
	return a.err
}

// TestAsk has answers with and without exit codes, and a too large one.
func TestAsk(t *testing.T) {
	for name, c := range map[string]struct {
		answering
		want int
		err  string
	}{
		"an answer":              {answering{stdout: "7"}, 7, ""},
		"an answer, and a code":  {answering{stdout: "7", stderr: "porin: 1 fault\n", err: &ExitError{1}}, 7, ""},
		"a code":                 {answering{stderr: "a warning\nporin: not reachable\n", err: &ExitError{4}}, 0, "not reachable"},
		"a code without a word":  {answering{err: &ExitError{126}}, 0, "exit code 126"},
		"half an answer":         {answering{stdout: "{"}, 0, "its answer cannot be read"},
		"an answer, and no code": {answering{stdout: "7", err: io.ErrUnexpectedEOF}, 0, "unexpected EOF"},
		"too large":              {answering{stdout: strings.Repeat(" ", maxAnswer+1)}, 0, "its answer is larger than 2 MiB"},
		"a long error":           {answering{stderr: strings.Repeat("x", maxStderr) + "\nporin: no\n", err: &ExitError{1}}, 0, "no"},
	} {
		got := Ask[int](t.Context(), c.answering, []Pod{{Running: true}}, nil, "status")[0]
		if got.Value != c.want || (got.Err == nil) != (c.err == "") || got.Err != nil && !strings.Contains(got.Err.Error(), c.err) {
			t.Errorf("%s: %d, %v; want %d, %q", name, got.Value, got.Err, c.want, c.err)
		}
	}
}
