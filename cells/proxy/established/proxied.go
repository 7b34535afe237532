package established

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// From linux/inet_diag.h.
const (
	messageLen = 72 // struct inet_diag_msg
	attrMark   = 15 // INET_DIAG_MARK
)

// proxySockets finds sockets of the proxy in the network namespace of the node, in which its thread has opened it.
type proxySockets struct{ socket *nl.SocketHandle }

func openProxySockets() (*proxySockets, error) {
	socket, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open a socket for the diagnosis of sockets: %w", err)
	}
	return &proxySockets{&nl.SocketHandle{Socket: socket}}, nil
}

func (p *proxySockets) close() { p.socket.Close() }

// has reports whether a socket with these ends is the proxy's, by its mark. One in TIME-WAIT is of a connection that is over: the ports may have another one by now.
func (p *proxySockets) has(local, remote netip.AddrPort) (bool, error) {
	r := nl.NewNetlinkRequest(sockDiagByFamily, 0)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: p.socket}
	r.AddData(requestFor(local, remote))
	messages, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for a socket of the proxy: %w", err)
	}
	for _, m := range messages {
		s, ok := decode(m)
		if !ok || s.state == timeWait || s.local != local || s.remote != remote { // the kernel finds a listening one, too
			continue
		}
		mark, err := markOf(m)
		if err != nil || mark&abi.ProxyMarkMask == abi.ProxyMark {
			return err == nil, err
		}
	}
	return false, nil
}

// requestFor asks for the one socket with these ends.
func requestFor(local, remote netip.AddrPort) request {
	r := request{family: unix.AF_INET6}
	if local.Addr().Is4() {
		r.family = unix.AF_INET
	}
	binary.BigEndian.PutUint16(r.id[0:], local.Port())
	binary.BigEndian.PutUint16(r.id[2:], remote.Port())
	copy(r.id[4:], local.Addr().AsSlice())
	copy(r.id[20:], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(r.id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE
	return r
}

// markOf is 0 for a socket without a mark.
func markOf(m []byte) (uint32, error) {
	if len(m) < messageLen {
		return 0, errors.New("the kernel's answer about a socket is too short")
	}
	attributes, err := nl.ParseRouteAttr(m[messageLen:])
	if err != nil {
		return 0, fmt.Errorf("read the kernel's answer about a socket: %w", err)
	}
	for _, a := range attributes {
		if a.Attr.Type == attrMark && len(a.Value) >= 4 {
			return binary.NativeEndian.Uint32(a.Value), nil
		}
	}
	return 0, nil
}
