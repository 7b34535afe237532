package plugin

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agent"
	"porin.dev/porin/cmd/cni/internal/ipam"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// adding is an ADD and what it made so far.
type adding struct {
	*task
	hostName          string
	hostMAC, podMAC   rtnl.MAC
	hostText, podText string // the same
	netns             int
	node, pod         *rtnl.Conn
	conn              *agent.Conn
	host              rtnl.Link
	endpoint          v1.Endpoint
	plugin            ipam.Plugin // if another one gives the addresses
	given             spec.Given  // by it
	undoBy            time.Time   // when the undo that the agent has a part in is to be over; zero until it begins
}

// step is a part of ADD. One whose do fails has left nothing; undo takes back a do that succeeded.
type step struct {
	name string
	do   func() error
	undo func()
}

// errLinkGone is why an ADD begins again: an agent that starts takes a link that it has no record of for one that was
// left, and removes it. By the second try it has started.
var errLinkGone = errors.New("somebody removed the interface while it was set up")

func (t *task) add() ([]byte, error) {
	result, err := t.tryAdd()
	if errors.Is(err, errLinkGone) {
		// It began when the first try did, for it may have been a DEL that removed the link: then the agent refuses it.
		result, err = t.tryAdd()
	}
	if errors.Is(err, errLinkGone) {
		err = &spec.Error{Code: spec.TryAgain, Msg: err.Error(), Hint: "look at the log of porin-agent for who removes it"}
	}
	return result, err
}

func (t *task) tryAdd() ([]byte, error) {
	a, err := newAdding(t)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := runSteps(a.steps()); err != nil {
		return nil, err
	}
	return a.result().JSON(t.Config.CNIVersion), nil
}

func newAdding(t *task) (a *adding, err error) {
	a = &adding{task: t, netns: -1, hostName: v1.HostInterfaceName(t.ContainerID, t.IfName)}
	a.hostText, a.podText = v1.InterfaceMACs(t.ContainerID, t.IfName)
	if a.hostMAC, err = rtnl.ParseMAC(a.hostText); err == nil {
		a.podMAC, err = rtnl.ParseMAC(a.podText)
	}
	return a, err
}

func (a *adding) steps() []step {
	return []step{
		{"find", a.findIPAM, func() {}},
		{"dial", a.dial, func() {}},
		{"open", a.open, func() {}},
		{"link", a.makeLink, a.removeLink},
		{"ipam", a.allocate, a.giveBack},
		{"dial again", a.dialAgain, func() {}},
		{"endpoint", a.create, a.deleteEndpoint},
		{"container", a.configure, func() {}}, // goes with the link
	}
}

// runSteps does all steps, or none.
func runSteps(steps []step) error {
	for i, s := range steps {
		if err := s.do(); err != nil {
			for ; i > 0; i-- {
				steps[i-1].undo()
			}
			return err
		}
	}
	return nil
}

// dial comes early: without an agent nothing else need be tried, and with one it is ready when the link is.
func (a *adding) dial() (err error) {
	if a.conn, err = a.agent.Dial(a.deadline); err != nil {
		return a.agentFault("create the endpoint of "+clip(a.ContainerID)+":"+a.IfName, err)
	}
	return nil
}

// open gets hold of both namespaces.
func (a *adding) open() error {
	fd, fault := a.openNetNS()
	if fault != nil {
		return fault
	}
	a.netns = fd
	var err error
	if a.node, err = rtnl.Dial(); err == nil {
		a.pod, err = rtnl.DialAt(fd)
	}
	if err != nil {
		return kernelFault("look into the container's network namespace", err)
	}
	return nil
}

// close lets go of what open got hold of. The process ends right after, but a test's does not.
func (a *adding) close() {
	if a.conn != nil {
		a.conn.Close()
	}
	for _, conn := range []*rtnl.Conn{a.node, a.pod} {
		if conn != nil {
			_ = conn.Close()
		}
	}
	if a.netns >= 0 {
		_ = unix.Close(a.netns)
	}
}

// result tells the runtime what was made.
func (a *adding) result() spec.Result {
	r := spec.Result{
		Interfaces: []spec.Interface{
			{Name: a.hostName, MAC: a.hostText, MTU: int(a.host.MTU)},
			{Name: a.IfName, MAC: a.podText, MTU: int(a.host.MTU), Sandbox: a.NetNS},
		},
		DNS: a.dns(),
	}
	for _, l := range layers(a.endpoint) {
		r.IPs = append(r.IPs, spec.IP{Interface: 1, Address: l.prefix, Gateway: a.gateway(l)})
		for _, dst := range a.ways(l) {
			r.Routes = append(r.Routes, spec.Route{Dst: dst, GW: l.gateway})
		}
	}
	return r
}

// clip keeps an ID from filling an error.
func clip(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
