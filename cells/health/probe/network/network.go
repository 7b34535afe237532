// Package network is the [probe.Transport] that sends ICMP echoes and HTTP requests.
package network

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/health/probe"
)

// Bounds of what an answer may have: whoever answers is not trusted.
const (
	maxHeader  = 4 << 10
	maxBody    = 1 << 10
	maxPackets = 1000 // that are read and are no answer
)

// Network sends probes in the network namespace of the process.
type Network struct{ client *http.Client }

// New returns a Network that keeps no connection.
func New() *Network {
	return &Network{&http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{}).DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Ping implements [probe.Transport]. It has a raw socket of its own that is connected: the kernel gives it packets from
// the address alone, so others can neither answer for it nor fill its buffer. An answer has the 128 random bits of the
// question.
func (n *Network) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	network, protocol, request, reply := "ip4:1", 1, icmp.Type(ipv4.ICMPTypeEcho), icmp.Type(ipv4.ICMPTypeEchoReply)
	if addr.Is6() {
		network, protocol, request, reply = "ip6:58", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr.String())
	if err != nil {
		return 0, plain(err)
	}
	defer conn.Close()
	if !isGlobal(conn.LocalAddr()) {
		return 0, probe.ErrNoSource
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	var id [2]byte
	question := &icmp.Echo{Seq: 1, Data: make([]byte, 16)}
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(question.Data)
	question.ID = int(id[0])<<8 | int(id[1])
	packet, err := (&icmp.Message{Type: request, Body: question}).Marshal(nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := conn.Write(packet); errors.Is(err, unix.EPERM) {
		return 0, errFiltered
	} else if err != nil {
		return 0, plain(err)
	}
	buffer := make([]byte, 256)
	for range maxPackets {
		size, _, err := conn.(*net.IPConn).ReadFrom(buffer)
		if err != nil {
			return 0, plain(err)
		}
		latency := time.Since(began)
		message, err := icmp.ParseMessage(protocol, buffer[:size])
		if err != nil || message.Type != reply {
			continue
		}
		answer, ok := message.Body.(*icmp.Echo)
		if ok && answer.ID == question.ID && answer.Seq == question.Seq && string(answer.Data) == string(question.Data) {
			return latency, nil
		}
	}
	return 0, fmt.Errorf("%w: only other packets", probe.ErrTimeout)
}

// Hello implements [probe.Transport].
func (n *Network) Hello(ctx context.Context, addr netip.Addr) (node string, latency time.Duration, err error) {
	url := "http://" + net.JoinHostPort(addr.String(), strconv.Itoa(probe.Port)) + probe.HelloPath
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", 0, err
	}
	began := time.Now()
	response, err := n.client.Do(request)
	if err != nil {
		return "", 0, plain(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return "", 0, plain(err)
	}
	latency = time.Since(began)
	if response.StatusCode != http.StatusOK {
		return "", 0, fmt.Errorf("%w: status %d", probe.ErrAnswer, response.StatusCode)
	}
	var answer probe.Answer
	if len(body) > maxBody || json.Unmarshal(body, &answer) != nil || answer.Node == "" {
		return "", 0, probe.ErrAnswer
	}
	return answer.Node, latency, nil
}

// isGlobal reports whether an answer to the address comes back: the kernel takes one of lo, or of a link, where the
// node has no other.
func isGlobal(addr net.Addr) bool {
	ip, ok := addr.(*net.IPAddr)
	return ok && ip.IP.IsGlobalUnicast()
}

// plain is the error without addresses, ports and URLs: it is one of few, so that many of them need little room.
func plain(err error) error {
	if refused := unix.ECONNREFUSED; errors.Is(err, refused) {
		return probe.ErrRefused
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return probe.ErrTimeout
	}
	if errors.Is(err, unix.EPERM) {
		return errPermission
	}
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		return probe.ErrNoSource
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return probe.ErrAnswer
}

var errFiltered = fmt.Errorf("%w: a firewall of this node drops what it sends", unix.EPERM)

var errPermission = fmt.Errorf("%w: probing by ICMP takes CAP_NET_RAW", unix.EPERM)
