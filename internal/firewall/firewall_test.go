package firewall_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"porin.dev/porin/internal/firewall"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// TestDropping sets up what Docker, ufw and firewalld do, and what drops nothing.
func TestDropping(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		want  []string
	}{
		"nothing": {},
		"Docker": {
			input: "table ip filter { chain DOCKER-USER {}; chain FORWARD { type filter hook forward priority 0; policy drop; jump DOCKER-USER; }; }",
			want:  []string{"chain FORWARD of nftables' table ip filter has policy drop; owner: Docker"},
		},
		"firewalld": {
			input: "table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; ct state established accept; reject with icmpx admin-prohibited; }; }",
			want:  []string{"chain filter_FORWARD of nftables' table inet firewalld has a last rule that drops or rejects everything; owner: firewalld"},
		},
		"a rule with a condition, and another hook": {
			input: "table inet mine { chain f { type filter hook forward priority 0; tcp dport 25 drop; }; chain i { type filter hook input priority 0; policy drop; }; }",
		},
		"Porin's own": {input: "table inet porin { chain forward { type filter hook forward priority 0; policy drop; }; }"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := testutil.NetNS(t)
			err := ns.Do(func() error {
				cmd := exec.Command("nft", "-f", "-")
				cmd.Stdin = strings.NewReader(c.input)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Logf("%s", out)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			namespace := open(t, ns)
			chains, err := firewall.Dropping(namespace)
			if err != nil {
				t.Fatal(err)
			}
			for _, chain := range chains {
				got = append(got, chain.String())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func open(t *testing.T, ns *testutil.Namespace) (f *os.File) {
	t.Helper()
	err := ns.Do(func() (err error) { f, err = os.Open("/proc/thread-self/ns/net"); return err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
