package crash

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// netfilterReads are the questions to netfilter.
var netfilterReads = []uint16{
	conntrackGet, tableMessage | unix.NFT_MSG_GETGEN, tableMessage | unix.NFT_MSG_GETTABLE, tableMessage | unix.NFT_MSG_GETCHAIN,
	tableMessage | unix.NFT_MSG_GETRULE, tableMessage | unix.NFT_MSG_GETSET, tableMessage | unix.NFT_MSG_GETSETELEM,
}

const (
	conntrackGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	tableMessage = unix.NFNL_SUBSYS_NFTABLES << 8
)

// netlinkEffect reads messages of route-netlink and of netfilter. Questions change nothing.
func netlinkEffect(datagram []byte) (effect, bool) {
	var changes []string
	for len(datagram) >= unix.NLMSG_HDRLEN {
		size, typ := binary.NativeEndian.Uint32(datagram), binary.NativeEndian.Uint16(datagram[4:])
		if name := messageName(typ); !slices.Contains(netfilterReads, typ) && !strings.HasPrefix(name, "RTM_GET") && !slices.Contains(changes, name) {
			changes = append(changes, name)
		}
		aligned := (int(size) + unix.NLMSG_ALIGNTO - 1) &^ (unix.NLMSG_ALIGNTO - 1)
		datagram = datagram[min(max(aligned, unix.NLMSG_HDRLEN), len(datagram)):]
	}
	return effect{call: strings.Join(changes, "+")}, len(changes) > 0
}

// objects are the kinds of message. Each has NEW, DEL, GET and SET (linux/rtnetlink.h).
var objects = map[uint16]string{
	unix.RTM_NEWLINK: "LINK", unix.RTM_NEWADDR: "ADDR", unix.RTM_NEWROUTE: "ROUTE", unix.RTM_NEWNEIGH: "NEIGH",
	unix.RTM_NEWQDISC: "QDISC", unix.RTM_NEWTFILTER: "TFILTER",
}

func messageName(typ uint16) string {
	if typ&^0xff == tableMessage {
		return fmt.Sprint("nftables message ", typ&0xff)
	}
	object, known := objects[typ&^3]
	if !known {
		object = fmt.Sprint(typ &^ 3)
	}
	return "RTM_" + [...]string{"NEW", "DEL", "GET", "SET"}[typ&3] + object
}

// bpfReads are the commands that change nothing.
var bpfReads = []uint64{
	unix.BPF_MAP_LOOKUP_ELEM, unix.BPF_MAP_GET_NEXT_KEY, unix.BPF_OBJ_GET, unix.BPF_PROG_TEST_RUN, unix.BPF_PROG_GET_NEXT_ID,
	unix.BPF_MAP_GET_NEXT_ID, unix.BPF_PROG_GET_FD_BY_ID, unix.BPF_MAP_GET_FD_BY_ID, unix.BPF_OBJ_GET_INFO_BY_FD, unix.BPF_PROG_QUERY,
	unix.BPF_BTF_GET_FD_BY_ID, unix.BPF_TASK_FD_QUERY, unix.BPF_BTF_GET_NEXT_ID, unix.BPF_MAP_LOOKUP_BATCH, unix.BPF_LINK_GET_FD_BY_ID,
	unix.BPF_LINK_GET_NEXT_ID, bpfTokenCreate,
}

// bpfTokenCreate is BPF_TOKEN_CREATE (Linux 6.9), which gives the caller a file and changes nothing else.
const bpfTokenCreate = 36

var bpfWrites = map[uint64]string{
	unix.BPF_MAP_CREATE: "MAP_CREATE", unix.BPF_MAP_UPDATE_ELEM: "MAP_UPDATE_ELEM", unix.BPF_MAP_DELETE_ELEM: "MAP_DELETE_ELEM",
	unix.BPF_PROG_LOAD: "PROG_LOAD", unix.BPF_OBJ_PIN: "OBJ_PIN", unix.BPF_BTF_LOAD: "BTF_LOAD", unix.BPF_MAP_FREEZE: "MAP_FREEZE",
	unix.BPF_PROG_ATTACH: "PROG_ATTACH", unix.BPF_PROG_DETACH: "PROG_DETACH",
	unix.BPF_MAP_UPDATE_BATCH: "MAP_UPDATE_BATCH", unix.BPF_MAP_DELETE_BATCH: "MAP_DELETE_BATCH", unix.BPF_LINK_CREATE: "LINK_CREATE",
}

func bpfEffect(command uint64) (effect, bool) {
	name, known := bpfWrites[command]
	if !known {
		name = fmt.Sprint("command ", command)
	}
	return effect{call: "bpf " + name}, !slices.Contains(bpfReads, command)
}
