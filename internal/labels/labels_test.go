package labels_test

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/internal/labels"
)

func TestLabels(t *testing.T) {
	long := strings.Repeat("a", 63)
	for label, good := range map[string]bool{
		"zone=a":                               true,
		"zone=":                                true,
		"topology.kubernetes.io/zone=eu-1.a_B": true,
		long + "=" + long:                      true,
		"=a":                                   false,
		"zo ne=a":                              false,
		"-zone=a":                              false,
		"zone-=a":                              false,
		"zone=a.":                              false,
		"zone=a/b":                             false,
		"/zone=a":                              false,
		"a/b/c=a":                              false,
		"a/=a":                                 false,
		"Upper.io/zone=a":                      false,
		"a..b/zone=a":                          false,
		long + "a=a":                           false,
		"zone=" + long + "a":                   false,
		strings.Repeat("a.", 127) + "/z=a":     false,
	} {
		key, value, _ := strings.Cut(label, "=")
		if err := labels.Check("label", map[string]string{key: value}); (err == nil) != good {
			t.Errorf("%s: error %v, want one: %v", label, err, !good)
		}
	}
}

func TestLabelsAllFaults(t *testing.T) {
	err := labels.Check("node-labels", map[string]string{"-b": "c", "fine": "", "a ": ""})
	want := []string{`node-labels "-b=c": want key=value`, `node-labels "a =": want key=value`}
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != len(want) || !strings.HasPrefix(lines[0], want[0]) || !strings.HasPrefix(lines[1], want[1]) {
		t.Errorf("errors %q, want %q", lines, want)
	}
}
