package redirect

import (
	"encoding/binary"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nft"
)

// tableName is Porin's.
const tableName = "porin-proxy"

const (
	beforeTracking   = -300 // NF_IP_PRI_RAW
	afterTranslation = -90  // NF_IP_PRI_NAT_DST is -100
	beforeHostFilter = -10  // of the table porin, which is before other filters (NF_IP_PRI_FILTER is 0)
)

// divertTable is the table inet porin-proxy, which has no sets.
func divertTable() *nft.Table {
	return &nft.Table{
		Name: tableName, Unsupported: ErrUnsupported,
		Chains: []nft.Chain{
			{
				Name: "untracked", Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookPrerouting, Order: beforeTracking,
				Rules: []nft.Rule{
					nft.On("the stack has seen it before").Meta(expr.MetaKeyIIFNAME, 0).Equal(0, ifname(link.ProxyDevice)...).With(&expr.Notrack{}),
				},
			},
			{
				Name: "divert", Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookPrerouting, Order: afterTranslation,
				Rules: []nft.Rule{
					// The node's NAT gives a packet its source after this chain. Before it, the packet may look like one of another
					// connection, with a port that this one does not keep. The programs send it to the device, as a first packet.
					opening(nft.On("opens a connection")).Meta(expr.MetaKeyIIFNAME, 0).NotEqual(0, ifname(link.ProxyDevice)...).Verdict(expr.VerdictAccept),
					translated(nft.On("gets another source")).Meta(expr.MetaKeyIIFNAME, 0).NotEqual(0, ifname(link.ProxyDevice)...).Verdict(expr.VerdictAccept),
					divertTo(ofProxy(nft.On("to a connection of the proxy").Protocol(unix.IPPROTO_TCP))),
					divertTo(ofProxy(nft.On("to a query of the proxy").Protocol(unix.IPPROTO_UDP))),
					divertTo(ofProxy(nft.On("ICMP errors about both").Protocol(unix.IPPROTO_ICMP))),
					divertTo(ofProxy(nft.On("ICMPv6 errors about both").Protocol(unix.IPPROTO_ICMPV6))),
					// The kernel knows no mark of a connection that is being opened, or is over: it ends a rule that asks for it. Of a
					// connection to a client, the programs decide about such packets first, and send them to the device: with the same
					// ports, a direct connection may follow an ended one through the proxy.
					divertTo(toTransparent(nft.On("to a connection of the proxy that begins or is over").Meta(expr.MetaKeyIIFNAME, 0).Equal(0, ifname(link.ProxyDevice)...))),
					nft.On("to a socket of another program").Protocol(unix.IPPROTO_TCP).With(&expr.Socket{Key: expr.SocketKeyMark, Register: nft.Register(0)}).Verdict(expr.VerdictAccept),
					divertTo(toTransparent(toProxyPort(nft.On("to one with a server")))),
					// Without a proxy its clients try again. The stack would answer IPv6 clients with a reset.
					nft.On("to a proxy that is not there").Meta(expr.MetaKeyIIFNAME, 0).Equal(0, ifname(link.ProxyDevice)...).Verdict(expr.VerdictDrop),
					// The kernel tracks connections only with a rule that asks for it. Without, the programs would not know which
					// packets of other nodes are answers to the proxy.
					nft.On("connections are tracked").With(&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Register(0)}),
				},
			},
			{
				// A connection to the node itself, whose socket is the proxy's: see select_listener. The chain input of the table
				// porin asks for the mark.
				Name: "accept", Type: nftables.ChainTypeFilter, Hook: nftables.ChainHookInput, Order: beforeHostFilter,
				Rules: []nft.Rule{
					divertTo(ofProxy(opening(nft.On("opens a connection to the proxy")))),
					nft.On("to a socket of another program").Protocol(unix.IPPROTO_TCP).With(&expr.Socket{Key: expr.SocketKeyMark, Register: nft.Register(0)}).Verdict(expr.VerdictAccept),
					divertTo(toTransparent(nft.On("to a connection of the proxy that begins or is over"))),
				},
			},
		},
	}
}

var bits = binaryutil.NativeEndian

// opening matches the first packet of a connection of TCP.
func opening(r nft.Rule) nft.Rule {
	const flags, fin, syn, rst, ack = 13, 1, 2, 4, 16 // RFC 9293, 3.1
	return r.Protocol(unix.IPPROTO_TCP).Transport(flags, 1, 0).With(
		&expr.Bitwise{SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
	).Equal(0, syn)
}

// translated matches packets of who has opened a connection, when the node's NAT gives them another source address or
// port.
func translated(r nft.Rule) nft.Rule {
	const original, sourceNAT = 0, 1 << 4 // IP_CT_DIR_ORIGINAL, IPS_SRC_NAT
	return r.With(&expr.Ct{Key: expr.CtKeyDIRECTION, Register: nft.Register(0)}).Equal(0, original).
		With(&expr.Ct{Key: expr.CtKeySTATUS, Register: nft.Register(0)}).HasBits(0, sourceNAT)
}

// ofProxy matches packets to sockets with the proxy's mark.
func ofProxy(r nft.Rule) nft.Rule {
	return r.With(
		&expr.Socket{Key: expr.SocketKeyMark, Register: nft.Register(0)},
		&expr.Bitwise{SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 4, Mask: bits.PutUint32(abi.ProxyMarkMask), Xor: bits.PutUint32(0)},
	).Equal(0, bits.PutUint32(abi.ProxyMark)...)
}

// toProxyPort matches packets of TCP to the ports that the proxy has for its own connections.
func toProxyPort(r nft.Rule) nft.Rule {
	const destination = 2 // RFC 9293, 3.1
	return r.Protocol(unix.IPPROTO_TCP).Transport(destination, 2, 0).With(
		&expr.Cmp{Op: expr.CmpOpGte, Register: nft.Register(0), Data: binary.BigEndian.AppendUint16(nil, abi.ProxyFirstPort)})
}

// toTransparent matches packets to connections of TCP with the option IP_TRANSPARENT. The kernel knows it also of
// connections that are being opened, or are over.
func toTransparent(r nft.Rule) nft.Rule {
	return r.Protocol(unix.IPPROTO_TCP).With(&expr.Socket{Key: expr.SocketKeyTransparent, Register: nft.Register(0)}).Equal(0, 1)
}

// divertTo delivers the packet to its socket on this node.
func divertTo(r nft.Rule) nft.Rule {
	return r.Meta(expr.MetaKeyMARK, 0).With(
		&expr.Bitwise{SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 4, Mask: bits.PutUint32(^uint32(abi.ProxyMarkMask)), Xor: bits.PutUint32(abi.ProxyDivertMark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: nft.Register(0)},
	).Verdict(expr.VerdictAccept)
}

func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}
