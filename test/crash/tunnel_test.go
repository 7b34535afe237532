package crash

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/node/tunnel"
)

const (
	vxlan  = "--routing=vxlan"
	native = "--routing=native"
)

// agentTunnelStart: an agent makes the tunnel. Killed wherever, the next one has it as a whole, with one address of
// each family.
func agentTunnelStart(s *scene) operation {
	return operation{
		victim:  s.agents,
		prepare: s.withoutTunnel,
		run:     func() { s.runWithTunnel(vxlan) },
		judge: func() error {
			return errors.Join(s.agentDies(), s.startAgain(vxlan), s.tunnelIs(nil), s.check("with the tunnel", nil))
		},
	}
}

// agentTunnelRestart: an agent takes over the tunnel of the previous one.
func agentTunnelRestart(s *scene) operation {
	return s.keepsTunnel(vxlan)
}

// agentTunnelSwitch: an agent in another mode keeps the tunnel, which others may still send by.
func agentTunnelSwitch(s *scene) operation {
	return s.keepsTunnel(native)
}

func (s *scene) keepsTunnel(flag string) operation {
	var before v1.TunnelStatus
	return operation{
		victim: s.agents,
		prepare: func() error {
			if err := errors.Join(s.startAgain(vxlan), s.tunnelIs(nil)); err != nil {
				return err
			}
			before = *s.tunnelStatus()
			return nil
		},
		run: func() { s.runWithTunnel(flag) },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.startAgain(flag), s.tunnelIs(&before), s.check("in the mode of "+flag, nil)); err != nil {
				return err
			}
			return errors.Join(s.startAgain(vxlan), s.tunnelIs(&before), s.check("with the tunnel", nil))
		},
	}
}

// runWithTunnel starts the agent that may be killed, and waits until it has done what it is to do.
func (s *scene) runWithTunnel(flag string) {
	s.agent.End()
	s.agent.Configure(s.flags(flag)...)
	if s.agent.TryStart() != nil || s.agents.wasHit() {
		return
	}
	_ = s.tunnelIs(nil)
}

// withoutTunnel leaves the node as it is before the first tunnel.
func (s *scene) withoutTunnel() error {
	s.agent.End()
	handle := s.node.Netlink(s.t)
	d, err := handle.LinkByName(tunnel.Device)
	if err == nil {
		err = handle.LinkDel(d)
	} else {
		err = nil
	}
	remove := os.Remove(filepath.Join(s.node.Dir, "store", "tunnel.json"))
	if errors.Is(remove, fs.ErrNotExist) {
		remove = nil
	}
	return errors.Join(err, remove, os.RemoveAll(filepath.Join(s.node.BPFRoot, "tunnel")))
}

func (s *scene) tunnelStatus() *v1.TunnelStatus {
	var status v1.Status
	if s.agent.Get("/v1/status", &status) != nil || status.Network.Tunnel == nil {
		return &v1.TunnelStatus{}
	}
	return status.Network.Tunnel
}

// tunnelIs waits until the node receives by the tunnel, with the addresses of before.
func (s *scene) tunnelIs(before *v1.TunnelStatus) error {
	return s.eventually(func() error {
		now := s.tunnelStatus()
		if now.Port == 0 || len(now.Addresses) != 2 || now.Error != "" {
			return fmt.Errorf("the tunnel is %+v", now)
		}
		if before != nil && fmt.Sprint(now.Addresses) != fmt.Sprint(before.Addresses) {
			return fmt.Errorf("the tunnel has the addresses %v, and had %v", now.Addresses, before.Addresses)
		}
		return nil
	})
}
