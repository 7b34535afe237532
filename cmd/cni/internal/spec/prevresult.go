package spec

import (
	"errors"
	"net/netip"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// ParseResult reads the result of an ADD, in the form of any version since 0.3.0, with what later plugins of a chain
// may have added. Members that it does not know are skipped.
func ParseResult(text []byte) (r Result, _ *Error) {
	err := jsontext.Fields(text, func(key string, value []byte) error {
		if jsontext.IsNull(value) {
			return nil
		}
		switch key {
		case "interfaces":
			return each(value, &r.Interfaces, Interface{}, Interface.field)
		case "ips":
			return each(value, &r.IPs, IP{Interface: -1}, IP.field) // it need not say of which it is
		case "routes":
			return each(value, &r.Routes, Route{}, Route.field)
		}
		return nil
	})
	if err != nil {
		return r, badConfig("prevResult", err)
	}
	return r, nil
}

// each reads a list of objects, member by member; an item begins as blank.
func each[T any](value []byte, list *[]T, blank T, field func(item T, key string, value []byte) (T, error)) error {
	return jsontext.Items(value, func(value []byte) error {
		item := blank
		err := jsontext.Fields(value, func(key string, value []byte) (err error) {
			if !jsontext.IsNull(value) {
				item, err = field(item, key, value)
			}
			return err
		})
		*list = append(*list, item)
		return err
	})
}

func (i Interface) field(key string, value []byte) (_ Interface, err error) {
	switch key {
	case "name":
		i.Name, err = jsontext.String(value)
	case "mac":
		i.MAC, err = jsontext.String(value)
	case "sandbox":
		i.Sandbox, err = jsontext.String(value)
	case "mtu":
		i.MTU, err = jsontext.Int(value)
	}
	return i, err
}

func (ip IP) field(key string, value []byte) (_ IP, err error) {
	switch key {
	case "interface":
		ip.Interface, err = jsontext.Int(value)
	case "address":
		ip.Address, err = readText(value, netip.ParsePrefix)
	case "gateway":
		ip.Gateway, err = readText(value, netip.ParseAddr)
	}
	return ip, err
}

func (r Route) field(key string, value []byte) (_ Route, err error) {
	switch key {
	case "dst":
		r.Dst, err = readText(value, netip.ParsePrefix)
	case "gw":
		r.GW, err = readText(value, netip.ParseAddr)
	}
	return r, err
}

// readText keeps what a value is from filling the error about it.
func readText[T any](value []byte, parse func(string) (T, error)) (T, error) {
	parsed, err := jsontext.Text(value, parse)
	if err != nil {
		err = errors.New(clip(err.Error()))
	}
	return parsed, err
}
