package loader

import (
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// getStats is IPCTNL_MSG_CT_GET_STATS of linux/netfilter/nfnetlink_conntrack.h.
const getStats = 5

// loadConntrack has the kernel load its connection tracking, where that is a module: programs are linked only with functions that are there. Without
// it they are loaded all the same, and [Program.asksConntrack] is false.
func loadConntrack() {
	request := nl.NewNetlinkRequest(netlink.ConntrackTable<<8|getStats, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	_, _ = request.Execute(unix.NETLINK_NETFILTER, 0)
}

// asksConntrack reports whether the program calls functions of the kernel: bpf_skb_ct_lookup is the only one that it knows. Not
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
