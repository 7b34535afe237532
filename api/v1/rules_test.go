package v1_test

import (
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

func TestRulesForNames(t *testing.T) {
	long := strings.Repeat("a", v1.MaxContainerID)
	for text, check := range map[string]struct {
		check func(string) error
		good  []string
		bad   []string
	}{
		"container ID": {
			v1.CheckContainerID,
			[]string{"c1", "0", "a_b.c-d", long},
			[]string{"", long + "a", "_a", ".a", "../a", "a/b", "a b", "a\x00", "ä", "a:b"},
		},
		"pool name": {
			v1.CheckPoolName,
			[]string{"default", "a", "0", "blue-1", strings.Repeat("p", 63)},
			[]string{"", "-a", "a-", "A", "a_b", "a.b", "a/b", "ä", strings.Repeat("p", 64)},
		},
		"token": {
			v1.CheckToken,
			[]string{"4UFXKSCNGRY3KIRXEYBGT6NQXC", "a", "0", strings.Repeat("T", 64)},
			[]string{"", strings.Repeat("T", 65), "T-0", "T 0", "T\n", "T\x00", "ä", ";", "../T"},
		},
		"interface name": {
			v1.CheckInterfaceName,
			[]string{"eth0", "net1", "a.100", strings.Repeat("e", 15)},
			[]string{"", ".", "..", "lo", "all", "default", strings.Repeat("e", 16), "a/b", "a:b", "a b", "eth%d", "a\n", "ä"},
		},
	} {
		for _, name := range check.good {
			if err := check.check(name); err != nil {
				t.Errorf("%s %q: %v", text, name, err)
			}
		}
		for _, name := range check.bad {
			if check.check(name) == nil {
				t.Errorf("%s %q is accepted", text, name)
			}
		}
	}
}
