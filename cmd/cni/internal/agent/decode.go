package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Members that are not read here are skipped: a newer agent may say more.

// fields is jsontext.Fields that skips null.
func fields(text []byte, visit func(key string, value []byte) error) error {
	return jsontext.Fields(text, func(key string, value []byte) error {
		if jsontext.IsNull(value) {
			return nil
		}
		if err := visit(key, value); err != nil {
			return fmt.Errorf("%.40s: %w", key, err)
		}
		return nil
	})
}

// decoded says of an error that it is of the answer.
func decoded(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return nil
}

func decodeEndpoint(text []byte) (ep v1.Endpoint, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "id":
			var id int
			id, err = jsontext.Int(value)
			ep.ID = uint16(id)
		case "containerID":
			ep.ContainerID, err = jsontext.String(value)
		case "ifname":
			ep.IfName, err = jsontext.String(value)
		case "state":
			ep.State, err = jsontext.String(value)
		case "host":
			ep.Host, err = decodeInterface(value)
		case "container":
			ep.Container, err = decodeInterface(value)
		case "addresses":
			ep.Addresses, err = decodeAddresses(value)
		case "gateways":
			ep.Gateways, err = decodeAddresses(value)
		case "created":
			ep.Created, err = jsontext.Text(value, func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) })
		}
		return err
	})
	return ep, decoded(err)
}

func decodeInterface(text []byte) (i v1.Interface, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "name":
			i.Name, err = jsontext.String(value)
		case "index":
			i.Index, err = jsontext.Int(value)
		case "mac":
			i.MAC, err = jsontext.String(value)
		}
		return err
	})
	return i, err
}

func decodeAddresses(text []byte) (a v1.Addresses, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "ipv4":
			a.IPv4, err = jsontext.Text(value, parseAddr)
		case "ipv6":
			a.IPv6, err = jsontext.Text(value, parseAddr)
		}
		return err
	})
	return a, err
}

// parseAddr reads an address; the empty text is none.
func parseAddr(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	return netip.ParseAddr(text)
}

func decodeDeleteResult(text []byte) (r v1.DeleteResult, err error) {
	err = fields(text, func(key string, value []byte) (err error) {
		switch key {
		case "deleted":
			r.Deleted, err = jsontext.Int(value)
		case "spared":
			r.Spared, err = jsontext.Int(value)
		case "errors":
			r.Errors, err = jsontext.Int(value)
		case "details":
			r.Details, err = jsontext.Strings(value)
		}
		return err
	})
	return r, decoded(err)
}

// problem is the error of an answer that refuses. One without a code has the code of its status.
func problem(a answer) error {
	p := &v1.Problem{Status: a.status, Code: v1.CodeInternal}
	err := fields(a.body, func(key string, value []byte) (err error) {
		switch key {
		case "title":
			p.Title, err = jsontext.String(value)
		case "code":
			p.Code, err = jsontext.String(value)
		case "detail":
			p.Detail, err = jsontext.String(value)
		}
		return err
	})
	if err != nil || p.Detail == "" {
		p.Detail = fmt.Sprintf("the agent answered with status %d and %.200q", a.status, strings.TrimSpace(string(a.body)))
	}
	return p
}
