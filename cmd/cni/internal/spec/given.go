package spec

import (
	"fmt"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Given is what an IPAM plugin answers an ADD, as far as it matters: the length of a prefix, gateways and routes do not, for
// a container has its address alone and one way out, which all destinations take.
type Given struct {
	Addresses v1.Addresses
	DNS       []byte // JSON; nil for none

	excess netip.Addr // beyond one of a family
}

// ParseGiven reads the answer in the form of any version since 0.3.0.
func ParseGiven(text []byte) (g Given, err error) {
	err = jsontext.Fields(text, func(key string, value []byte) (err error) {
		switch {
		case jsontext.IsNull(value):
		case key == "ips":
			err = jsontext.Items(value, g.item)
		case key == "dns":
			g.DNS, err = readDNS(value)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	return g, err
}

func (g *Given) item(value []byte) error {
	return jsontext.Fields(value, func(key string, value []byte) error {
		if key != "address" {
			return nil
		}
		prefix, err := readText(value, netip.ParsePrefix)
		if err == nil {
			g.take(prefix.Addr().Unmap())
		}
		return err
	})
}

func (g *Given) take(addr netip.Addr) {
	slot := &g.Addresses.IPv6
	if addr.Is4() {
		slot = &g.Addresses.IPv4
	}
	if slot.IsValid() {
		g.excess = addr
		return
	}
	*slot = addr
}

// Excess is an error when more was given than a container can have.
func (g Given) Excess(plugin string) error {
	if !g.excess.IsValid() {
		return nil
	}
	first := g.Addresses.IPv6
	if g.excess.Is4() {
		first = g.Addresses.IPv4
	}
	return &Error{
		BadConfig, fmt.Sprintf("the IPAM plugin %s gave the addresses %s and %s, two of one family", plugin, first, g.excess),
		`have it give one IPv4 and one IPv6 address at the most ("ipam" in the network configuration)`,
	}
}

// ParseError reads an error as a plugin prints it. It is none without a code and a message.
func ParseError(text []byte) (*Error, bool) {
	var e Error
	err := jsontext.Fields(text, func(key string, value []byte) (err error) {
		switch {
		case jsontext.IsNull(value):
		case key == "code":
			var code int
			code, err = jsontext.Int(value)
			e.Code = Code(code)
		case key == "msg":
			e.Msg, err = jsontext.String(value)
		case key == "details":
			e.Hint, err = jsontext.String(value)
		}
		return err
	})
	return &e, err == nil && e.Code > 0 && e.Msg != ""
}
