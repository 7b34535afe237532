package crash

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"time"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// withHostPorts is the operation with containers that ask for a host port, and one more pod that lives all the time
// with another.
func withHostPorts(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		s.t.Helper()
		c := testutil.NewContainer(s.t)
		c.Args, c.Caps = podArgs(residents, c.ID[:16]), hostPorts(8080)
		p, err := s.add(c)
		if err != nil {
			s.t.Fatal(err)
		}
		s.live = append(s.live, p)
		s.guestCaps = hostPorts(8090)
		return of(s)
	}
}

// hostPorts asks for the port by both protocols.
func hostPorts(port int) map[string]any {
	var mappings []any
	for _, protocol := range []string{"tcp", "udp"} {
		mappings = append(mappings, map[string]any{"hostPort": port, "containerPort": 80, "protocol": protocol})
	}
	return map[string]any{portMappings: mappings}
}

// portMappings is the capability that a container asks for host ports with.
const portMappings = "portMappings"

func asksForHostPorts(caps map[string]any) bool { return caps[portMappings] != nil }

var ipv4Address = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)

// hostPortsAgree checks that host ports lead to the live pods that asked for one, and to as many others at the most.
func (s *scene) hostPortsAgree(live []nodecheck.Pod, others int) (err error) {
	if !asksForHostPorts(s.guestCaps) {
		return nil
	}
	for deadline := time.Now().Add(settle); ; time.Sleep(between) {
		if err = s.hostPortsAre(live, others); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

const between = 10 * time.Millisecond

func (s *scene) hostPortsAre(live []nodecheck.Pod, others int) error {
	var text []byte
	err := s.node.Do(func() (err error) {
		text, err = exec.Command("nft", "list", "set", "inet", "porin-hostport", "pods-ipv4").CombinedOutput()
		return err
	})
	if err != nil {
		return fmt.Errorf("list the pods with host ports: %w: %s", err, text)
	}
	found := map[netip.Addr]bool{}
	for _, addr := range ipv4Address.FindAllString(string(text), -1) {
		found[netip.MustParseAddr(addr)] = true
	}
	for _, p := range live {
		if !asksForHostPorts(p.Caps) {
			continue
		}
		if !found[p.IPv4] {
			return fmt.Errorf("no host port leads to %s: %s", p.IPv4, text)
		}
		delete(found, p.IPv4)
	}
	if len(found) > others {
		return fmt.Errorf("host ports lead to %v, which are nobody's", found)
	}
	return nil
}
