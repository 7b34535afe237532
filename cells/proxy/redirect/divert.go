package redirect

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nft"
)

// divertMark is the mark, in [abi.ProxyMarkMask], of packets for sockets of the proxy. It is another one than that of packets from there.
const divertMark = 0x0a8

const (
	beforeTracking   = -300 // NF_IP_PRI_RAW
	afterTranslation = -90  // NF_IP_PRI_NAT_DST is -100
)

// divert is the table inet porin-proxy.
type divert struct{ owner *nft.Owner }

func newDivert(namespace *os.File, log *slog.Logger) *divert {
	return &divert{owner: nft.New(namespace, divertTable(), log)}
}

func divertTable() *nft.Table {
	return &nft.Table{
		Name: "porin-proxy", Unsupported: ErrUnsupported,
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
					toProxy(nft.On("to a connection of the proxy").Protocol(unix.IPPROTO_TCP)),
					toProxy(nft.On("to a query of the proxy").Protocol(unix.IPPROTO_UDP)),
					// Only with a rule that asks for it does the kernel track connections: without, the programs would not know which
					// packets of other nodes are answers to the proxy.
					nft.On("connections are tracked").With(&expr.Ct{Key: expr.CtKeySTATE, Register: nft.Register(0)}),
				},
			},
		},
	}
}

// toProxy marks packets to sockets with the proxy's mark.
func toProxy(r nft.Rule) nft.Rule {
	bits := binaryutil.NativeEndian
	return r.
		With(
			&expr.Socket{Key: expr.SocketKeyMark, Register: nft.Register(0)},
			&expr.Bitwise{SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 4, Mask: bits.PutUint32(abi.ProxyMarkMask), Xor: bits.PutUint32(0)},
		).
		Equal(0, bits.PutUint32(abi.ProxyMark)...).
		Meta(expr.MetaKeyMARK, 0).
		With(
			&expr.Bitwise{SourceRegister: nft.Register(0), DestRegister: nft.Register(0), Len: 4, Mask: bits.PutUint32(^uint32(abi.ProxyMarkMask)), Xor: bits.PutUint32(divertMark)},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: nft.Register(0)},
		)
}

func ifname(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

func (d *divert) apply() error {
	if err := d.owner.Apply(nft.State{}); err != nil {
		return fmt.Errorf("divert packets to the proxy: %w", err)
	}
	return nil
}

func (d *divert) remove() error { return d.owner.Apply(nil) }

func (d *divert) close() error { return d.owner.Close() }
