package fleet

import (
	"errors"
	"testing"
)

func TestWithoutURL(t *testing.T) {
	for text, want := range map[string]string{
		`Internal error occurred: error sending request: Post "https://192.0.2.7:10250/exec/kube-system/porin-agent-7bt96/agent?command=porin": dial tcp 192.0.2.7:10250: connect: connection refused`: "Internal error occurred: error sending request: dial tcp 192.0.2.7:10250: connect: connection refused",
		"container not found": "container not found",
	} {
		if got := withoutURL(errors.New(text)); got.Error() != want {
			t.Errorf("%s", got)
		}
	}
	if withoutURL(nil) != nil {
		t.Error("an error without one")
	}
}
