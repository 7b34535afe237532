package loader

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
)

// getStats is IPCTNL_MSG_CT_GET_STATS of linux/netfilter/nfnetlink_conntrack.h.
const getStats = 5

// loadConntrack has the kernel load its connection tracking, where that is a module: programs are linked only with
// functions that are there. Without it they are loaded all the same.
func loadConntrack() {
	request := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|getStats, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, _ = request.Execute(unix.NETLINK_NETFILTER, 0)
}

// configureConntrack tells the programs of the spec whether they can ask the kernel's connection tracking.
func configureConntrack(spec *ebpf.CollectionSpec, kernel *btf.Cache) error {
	present := uint8(0)
	if hasConntrack(kernel) {
		present = 1
	}
	return spec.Variables[bpf.ConntrackPresent].Set(present)
}

func hasConntrack(kernel *btf.Cache) bool {
	var function *btf.Func
	if types, err := kernel.Kernel(); err != nil || types.TypeByName(bpf.ConntrackLookup, &function) == nil {
		return err == nil
	}
	types, err := kernel.Module(bpf.ConntrackModule)
	return err == nil && !errors.Is(types.TypeByName(bpf.ConntrackLookup, &function), btf.ErrNotFound)
}

// asksConntrack reports whether the program calls a function of the kernel: all that it knows are of conntrack. Not
// knowing counts as yes.
func (p *Program) asksConntrack() bool {
	info, err := p.Info()
	if err != nil {
		return true
	}
	instructions, err := info.Instructions()
	if err != nil {
		return true
	}
	for _, i := range instructions {
		if i.IsKfuncCall() {
			return true
		}
	}
	return false
}
