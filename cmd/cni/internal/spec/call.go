package spec

import (
	"fmt"
	"io"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
)

// Call is one execution of the plugin.
type Call struct {
	Environment
	Config    Config
	Stdin     []byte       // the configuration as it came
	Addresses v1.Addresses // asked for
}

// maxStdin bounds a configuration, of which the list of valid attachments may be the most.
const maxStdin = 16 << 20

// Read reads what the runtime hands over and checks it. Stdin is not read for VERSION, nor when there is no command.
// The error has the configuration's version as far as it was read; see [Call.Config].
func Read(getenv func(string) string, stdin io.Reader) (Call, *Error) {
	env, fault := readEnvironment(getenv)
	call := Call{Environment: env}
	if fault != nil || env.Command == "VERSION" || env.Command == "" {
		return call, fault
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
	if err == nil && len(text) > maxStdin {
		err = fmt.Errorf("it is larger than %d bytes", maxStdin)
	}
	if err != nil {
		return call, &Error{IOFailure, "read the network configuration from stdin: " + err.Error(), ""}
	}
	call.Stdin = text
	if call.Config, fault = parseConfig(text, env.Command); fault != nil {
		return call, fault
	}
	return call, call.check()
}

// check looks at what the parts mean together.
func (c *Call) check() *Error {
	if err := checkVersion(c.Config.CNIVersion, c.Command); err != nil {
		return err
	}
	switch name := c.Config.Name; {
	case name == "":
		return badConfig("name", fmt.Errorf("it is missing"))
	case !v1.IsName(name) || len(name) > 253:
		return badConfig("name", fmt.Errorf("%q: want letters, digits, '_', '.' and '-', beginning with a letter or digit", clip(name)))
	}
	for _, ip := range append(c.Args.IPs, c.Config.IPs...) {
		if err := c.ask(ip); err != nil {
			return err
		}
	}
	if err := c.checkPools(); err != nil {
		return err
	}
	switch {
	case c.Command == "ADD" && c.Config.PrevResult != nil:
		return &Error{BadConfig, "porin-cni is chained after another plugin, but makes the interface itself", "make it the first of the list of plugins"}
	case c.Command == "CHECK" && c.Config.PrevResult == nil:
		return &Error{BadConfig, "CHECK without prevResult", "the container runtime must pass the result of ADD"}
	case c.Command == "GC" && c.Config.Valid == nil:
		return &Error{BadConfig, "GC without cni.dev/valid-attachments", "the container runtime must list the attachments to keep"}
	}
	return nil
}

// ask adds an address that is asked for.
func (c *Call) ask(ip netip.Addr) *Error {
	asked := &c.Addresses.IPv6
	if ip.Is4() {
		asked = &c.Addresses.IPv4
	}
	if asked.IsValid() && *asked != ip {
		return &Error{
			BadConfig, fmt.Sprintf("the addresses %s and %s are asked for, two of one family", *asked, ip),
			"ask for one IPv4 and one IPv6 address at the most (CNI_ARGS IP, runtimeConfig.ips, args.cni.ips)",
		}
	}
	*asked = ip
	return nil
}
