package spec

import (
	"net/netip"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Result is what ADD made.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        []byte // JSON; nil for none
}

// Interface is one interface; Sandbox is empty for one on the node.
type Interface struct {
	Name, MAC, Sandbox string
	MTU                int
}

// IP is an address of the interface with that index in Interfaces.
type IP struct {
	Interface int
	Address   netip.Prefix
	Gateway   netip.Addr
}

// Route is a route in the container.
type Route struct {
	Dst netip.Prefix
	GW  netip.Addr
}

// JSON is the result in the form of a version of the specification.
func (r Result) JSON(version string) []byte {
	var w jsontext.Writer
	w.Open('{')
	w.Field("cniVersion", version)
	w.Key("interfaces")
	w.Open('[')
	for _, i := range r.Interfaces {
		i.write(&w, version)
	}
	w.Close(']')
	w.Key("ips")
	w.Open('[')
	for _, ip := range r.IPs {
		ip.write(&w, version)
	}
	w.Close(']')
	w.Key("routes")
	w.Open('[')
	for _, route := range r.Routes {
		w.Open('{')
		w.Field("dst", route.Dst.String())
		w.Field("gw", route.GW.String())
		w.Close('}')
	}
	w.Close(']')
	if r.DNS != nil {
		w.Key("dns")
		w.Raw(r.DNS)
	}
	w.Close('}')
	return append(w.Bytes(), '\n')
}

func (i Interface) write(w *jsontext.Writer, version string) {
	w.Open('{')
	w.Field("name", i.Name)
	w.Field("mac", i.MAC)
	if atLeast(version, "1.1.0") {
		w.OptInt("mtu", int64(i.MTU))
	}
	w.OptField("sandbox", i.Sandbox)
	w.Close('}')
}

func (ip IP) write(w *jsontext.Writer, version string) {
	w.Open('{')
	if !atLeast(version, "1.0.0") {
		family := "6"
		if ip.Address.Addr().Is4() {
			family = "4"
		}
		w.Field("version", family)
	}
	w.Key("interface")
	w.Int(int64(ip.Interface))
	w.Field("address", ip.Address.String())
	w.Field("gateway", ip.Gateway.String())
	w.Close('}')
}
