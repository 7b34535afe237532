package agent

import (
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
	"porin.dev/porin/cmd/cni/internal/spec"
)

// Create asks for an endpoint, and runs meanwhile until the answer is waited for. The endpoint has Addresses and
// Gateways, and what else [Client.Endpoint] says.
func (c *Conn) Create(a spec.Attachment, request v1.EndpointRequest, meanwhile func()) (v1.Endpoint, error) {
	body, err := c.call("PUT", "/v1/endpoint/"+escape(a.ContainerID+":"+a.IfName), encodeRequest(request), maxAnswer, meanwhile)
	if err != nil {
		return v1.Endpoint{}, err
	}
	return decodeEndpoint(body)
}

// Delete asks to delete the endpoint of the attachment. One that is unknown is a success.
func (c Client) Delete(deadline time.Time, a spec.Attachment) (v1.DeleteResult, error) {
	body, err := c.call(deadline, "DELETE", "/v1/endpoint/"+ref(a), nil, maxAnswer)
	if err != nil {
		return v1.DeleteResult{}, err
	}
	return decodeDeleteResult(body)
}

// Endpoint reads the endpoint of the attachment: ID, ContainerID, IfName, State, Host, Container, Addresses, Gateways
// and Created.
func (c Client) Endpoint(deadline time.Time, a spec.Attachment) (v1.Endpoint, error) {
	body, err := c.call(deadline, "GET", "/v1/endpoint/"+ref(a), nil, maxAnswer)
	if err != nil {
		return v1.Endpoint{}, err
	}
	return decodeEndpoint(body)
}

// Endpoints lists the endpoints of a network, as [Client.Endpoint] describes them.
func (c Client) Endpoints(deadline time.Time, network string) (list []v1.Endpoint, err error) {
	body, err := c.call(deadline, "GET", "/v1/endpoint?network="+escape(network), nil, maxList)
	if err != nil {
		return nil, err
	}
	err = jsontext.Items(body, func(value []byte) error {
		ep, err := decodeEndpoint(value)
		list = append(list, ep)
		return err
	})
	return list, decoded(err)
}

// Status asks whether the agent is ready, and how many programs it has in the kernel.
func (c Client) Status(deadline time.Time) (ready bool, programs int, err error) {
	body, err := c.call(deadline, "GET", "/v1/status", nil, maxAnswer)
	if err != nil {
		return false, 0, err
	}
	return decodeStatus(body)
}

func ref(a spec.Attachment) string {
	return "cni-attachment-id:" + escape(a.ContainerID+":"+a.IfName)
}

// escape makes a text fit for a part of a URL (RFC 3986), and leaves nothing that may be read in two ways.
func escape(text string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(text) {
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':'
		if plain {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
