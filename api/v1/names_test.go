package v1_test

import (
	"net"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

// The names are on links that outlive the agent and its version: they must never change.
func TestAttachmentNamesStable(t *testing.T) {
	hostMAC, containerMAC := v1.InterfaceMACs("0123456789ab", "eth0")
	for got, want := range map[string]string{
		v1.HostInterfaceName("0123456789ab", "eth0"): "porwuj7qlfgsjck",
		hostMAC:      "56:7e:97:42:c6:7c",
		containerMAC: "62:38:83:9a:8d:93",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestHostInterfaceName(t *testing.T) {
	seen := map[string]string{}
	for _, attachment := range [][2]string{{"a", "eth0"}, {"a", "eth1"}, {"b", "eth0"}, {"", ""}, {"ae", "th0"}, {strings.Repeat("a", 256), "net1"}} {
		name := v1.HostInterfaceName(attachment[0], attachment[1])
		if len(name) != 15 || !strings.HasPrefix(name, v1.HostInterfacePrefix) {
			t.Errorf("%q: name %q", attachment, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q are both %s", attachment, other, name)
		}
		seen[name] = attachment[0]
	}
}

func TestInterfaceMACs(t *testing.T) {
	for _, containerID := range []string{"a", "b", "c", "d", "e", "f"} {
		host, container := v1.InterfaceMACs(containerID, "eth0")
		if host == container {
			t.Errorf("%s: both ends are %s", containerID, host)
		}
		for _, text := range []string{host, container} {
			mac, err := net.ParseMAC(text)
			if err != nil || len(mac) != 6 || mac[0]&0x03 != 0x02 {
				t.Errorf("%s: MAC %s (%v)", containerID, text, err)
			}
		}
	}
}
