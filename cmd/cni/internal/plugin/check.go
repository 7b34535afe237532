package plugin

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// checking is a CHECK: what three sources say of one attachment. What the agent says of the node it holds against the
// kernel itself.
type checking struct {
	*task
	result    spec.Result // of the ADD
	endpoint  v1.Endpoint // of the agent
	host, pod rtnl.Link   // of the kernel, as are the next three
	addrs     []rtnl.Addr
	routes    []rtnl.Route
	neighs    []rtnl.Neigh
}

// check names the first difference between the result of ADD, the agent and the kernel.
func (t *task) check() error {
	c := &checking{task: t}
	result, fault := spec.ParseResult(t.Config.PrevResult)
	if fault != nil {
		return fault
	}
	c.result = result
	var err error
	if c.endpoint, err = t.agent.Endpoint(t.deadline, t.attachment()); err != nil {
		return t.agentFault("look at the endpoint of "+clip(t.ContainerID)+":"+t.IfName, err)
	}
	if err := c.readKernel(); err != nil {
		return err
	}
	for _, compare := range []func() string{c.links, c.macs, c.addresses, c.ways, c.neighbours} {
		if difference := compare(); difference != "" {
			return differs(difference)
		}
	}
	if err := c.nodeSide(); err != nil {
		return err
	}
	return t.forward(t.deadline)
}

func differs(difference string) *spec.Error {
	return &spec.Error{Code: spec.Differs, Msg: difference, Hint: "remove the container and create it again"}
}

// nodeSide asks the agent for what disagrees outside of the container: ledger, addresses, filters, routes, map entries.
// What cannot be examined is not known to disagree.
func (c *checking) nodeSide() error {
	findings, err := c.agent.Examine(c.deadline, c.attachment())
	switch {
	case refusedForGood(err):
		return nil // an agent of an earlier version, which has no such call
	case err != nil:
		return c.agentFault("examine the endpoint of "+clip(c.ContainerID)+":"+c.IfName, err)
	case len(findings) == 0:
		return nil
	}
	f := findings[0]
	fault := differs(fmt.Sprintf("%s: %s: %s", f.Kind, f.Subject, f.Detail))
	fault.Hint = "the agent repairs what it can: look at porin doctor; if it stays, " + fault.Hint
	return fault
}

// readKernel reads both ends. A link that is not there stays zero.
func (c *checking) readKernel() error {
	fd, fault := c.openNetNS()
	if fault != nil {
		return fault
	}
	defer unix.Close(fd)
	node, err := rtnl.Dial()
	if err == nil {
		defer node.Close()
		err = optional(node.Do(rtnl.LinkByName(v1.HostInterfaceName(c.ContainerID, c.IfName), &c.host)))
	}
	if err == nil {
		err = c.readContainer(fd)
	}
	if err != nil {
		return kernelFault("look at the container's interface "+c.IfName, err)
	}
	return nil
}

func (c *checking) readContainer(netns int) error {
	pod, err := rtnl.DialAt(netns)
	if err != nil {
		return err
	}
	defer pod.Close()
	err = optional(pod.Do(rtnl.LinkByName(c.IfName, &c.pod)))
	if err != nil || c.pod.Index == 0 {
		return err
	}
	if c.addrs, err = pod.Addrs(c.pod.Index); err == nil {
		c.routes, err = pod.Routes(c.pod.Index)
	}
	if err == nil {
		c.neighs, err = pod.Neighs(c.pod.Index)
	}
	return err
}

// optional takes a link that is not there for no failure.
func optional(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func (c *checking) links() string {
	name := v1.HostInterfaceName(c.ContainerID, c.IfName)
	switch {
	case c.pod.Index == 0:
		return "interface " + c.IfName + " is missing in the container"
	case c.host.Index == 0:
		return "interface " + name + " is missing on the node"
	case c.pod.Kind != "veth" || c.host.Kind != "veth" || c.pod.Peer != c.host.Index || c.host.Peer != c.pod.Index:
		return fmt.Sprintf("interface %s in the container is not the other end of %s on the node", c.IfName, name)
	case !c.pod.Up():
		return "interface " + c.IfName + " is down in the container"
	case !c.host.Up():
		return "interface " + name + " is down on the node"
	case c.endpoint.Host.Index != 0 && c.endpoint.Host.Index != c.host.Index:
		return fmt.Sprintf("the agent knows interface %d on the node, but %s is %d", c.endpoint.Host.Index, name, c.host.Index)
	}
	return ""
}

// macs compares the container's MAC, which is what the datapath lets pass.
func (c *checking) macs() string {
	i := slices.IndexFunc(c.result.Interfaces, func(i spec.Interface) bool { return i.Name == c.IfName && i.Sandbox != "" })
	if i < 0 {
		return "the result of ADD has no interface " + c.IfName
	}
	kernel := c.pod.MAC.String()
	for source, mac := range map[string]string{"the result of ADD": c.result.Interfaces[i].MAC, "the agent": c.endpoint.Container.MAC} {
		if mac != "" && mac != kernel {
			return fmt.Sprintf("interface %s has the MAC %s, but %s says %s", c.IfName, kernel, source, mac)
		}
	}
	return ""
}

// addresses wants those of the agent on the interface and in the result, and no other of the result.
func (c *checking) addresses() string {
	want := layers(c.endpoint)
	for _, l := range want {
		addr := l.prefix
		if !slices.ContainsFunc(c.addrs, func(a rtnl.Addr) bool { return a.Prefix == addr }) {
			return fmt.Sprintf("address %s is missing on interface %s", addr, c.IfName)
		}
		if !slices.ContainsFunc(c.result.IPs, func(ip spec.IP) bool { return ip.Address == addr }) {
			return fmt.Sprintf("address %s is the agent's, but not in the result of ADD", addr)
		}
	}
	for _, ip := range c.result.IPs {
		ours := ip.Interface >= 0 && ip.Interface < len(c.result.Interfaces) && c.result.Interfaces[ip.Interface].Name == c.IfName
		if ours && !slices.ContainsFunc(want, func(l layer) bool { return l.prefix == ip.Address }) {
			return fmt.Sprintf("address %s is in the result of ADD, but not the agent's", ip.Address)
		}
	}
	return ""
}

func (c *checking) neighbours() string {
	for _, l := range layers(c.endpoint) {
		permanent := func(n rtnl.Neigh) bool {
			return n.Addr == l.gateway && n.MAC == c.host.MAC && n.State&unix.NUD_PERMANENT != 0
		}
		if !slices.ContainsFunc(c.neighs, permanent) {
			return fmt.Sprintf("permanent neighbour %s with MAC %s is missing on interface %s", l.gateway, c.host.MAC, c.IfName)
		}
	}
	return ""
}
