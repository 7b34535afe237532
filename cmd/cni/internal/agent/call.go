package agent

import (
	"strconv"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
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

// Delete asks to delete the endpoint of the attachment, unless its life began after the deletion, which began at that
// time of CLOCK_BOOTTIME. One that is unknown is a success.
func (c Client) Delete(deadline time.Time, a spec.Attachment, began time.Duration) (v1.DeleteResult, error) {
	path := "/v1/endpoint/" + ref(a) + "?began=" + strconv.FormatInt(began.Nanoseconds(), 10)
	body, err := c.call(deadline, "DELETE", path, nil, maxAnswer)
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

// CollectGarbage asks to delete what is not valid.
func (c Client) CollectGarbage(deadline time.Time, request v1.GCRequest) (v1.GCResult, error) {
	body, err := c.call(deadline, "POST", "/v1/gc", encodeGCRequest(request), maxList)
	if err != nil {
		return v1.GCResult{}, err
	}
	return decodeGCResult(body)
}

// Examine asks what disagrees about the attachment: Kind, Subject and Detail of each finding.
func (c Client) Examine(deadline time.Time, a spec.Attachment) ([]v1.Finding, error) {
	body, err := c.call(deadline, "GET", "/v1/doctor?endpoint="+escape(a.ContainerID+":"+a.IfName), nil, maxAnswer)
	if err != nil {
		return nil, err
	}
	return decodeFindings(body)
}

// Status asks how the agent is: whether it is Ready, its Programs, of which the number alone is read, and Resources,
// less what is used and what there is of them.
func (c Client) Status(deadline time.Time) (v1.Status, error) {
	body, err := c.call(deadline, "GET", "/v1/status", nil, maxAnswer)
	if err != nil {
		return v1.Status{}, err
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
