package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func (s *story) run(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(s.bin, "porin"), append([]string{"--socket", s.node.Socket}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return string(out), err
}

func decode(s *story, listing string) (endpoints []v1.Endpoint) {
	s.must(json.Unmarshal([]byte(listing), &endpoints), "read the listing")
	return endpoints
}

func (s *story) status() v1.Status {
	status, err := client.New(s.node.Socket).Status(context.Background())
	s.must(err, "GET /v1/status")
	return status
}

func (s *story) events() (events []v1.Event) {
	out, err := s.run("events", "-o", "json")
	s.must(err, "porin events")
	for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
		var event v1.Event
		s.must(decoder.Decode(&event), "read an event")
		events = append(events, event)
	}
	return events
}

// nothingLeft asks the kernel and the agent for what belonged to the containers.
func (s *story) nothingLeft() {
	links := s.node.LinkNames(s)
	for _, link := range links {
		if strings.HasPrefix(link, v1.HostInterfacePrefix) {
			s.Errorf("link %s is left", link)
		}
	}
	s.say("no link is left on the node, and so no filter on one: it has %s", strings.Join(links, " "))
	for _, c := range s.containers {
		if inside := c.LinkNames(s); len(inside) != 1 {
			s.Errorf("links in %s: %v", c.name, inside)
		}
	}
	s.say("no link is left in the containers but lo")
	routes, err := s.node.Routes(0)
	s.must(err, "list routes")
	for _, c := range s.containers {
		if slices.ContainsFunc(routes, func(r netlink.Route) bool {
			dst := nl.Addr(r.Dst.IP)
			return dst == c.ipv4 || dst == c.ipv6
		}) {
			s.Errorf("a route to %s is left", c.name)
		}
	}
	s.say("no route to them is left")
	usage, err := client.New(s.node.Socket).IPAM(context.Background())
	s.must(err, "GET /v1/ipam")
	if len(usage.Allocations) > 0 {
		s.Errorf("addresses are left: %v", usage.Allocations)
	}
	s.say("no address is in use; the two of each family are in quarantine")
}

// programsGone waits until the kernel has freed unused programs.
func (s *story) programsGone(programs []v1.Program) {
	for _, p := range programs {
		testutil.Eventually(s, func() error {
			program, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("program %s with ID %d is still loaded", p.Name, p.ID)
				_ = program.Close()
			}
			return err
		})
		s.say("program %s with ID %d is gone from the kernel", p.Name, p.ID)
	}
}
