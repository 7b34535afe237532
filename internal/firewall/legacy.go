package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h; both families have the same numbers.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES

	hookForward = 2  // NF_INET_FORWARD
	targetSize  = 32 // struct xt_entry_target, before the verdict
	verdictDrop = -1 // of a standard target: -NF_DROP - 1
)

type tableInfo struct {
	name                  [32]byte
	validHooks            uint32
	hookEntry, underflow  [5]uint32
	entryCount, tableSize uint32
}

// families are those of the older iptables.
var families = []struct {
	program, names string
	family, level  int
	targetOffset   int // where an entry says where its target is
}{
	{"iptables", "ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 88},
	{"ip6tables", "ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 140},
}

// droppingLegacy asks only about tables that are there: to ask makes them.
func droppingLegacy() (found []Chain, err error) {
	for _, f := range families {
		names, readErr := os.ReadFile("/proc/thread-self/net/" + f.names)
		if readErr != nil || !slices.Contains(strings.Fields(string(names)), "filter") {
			continue
		}
		table, underflow, tableErr := readTable(f.family, f.level)
		if tableErr != nil {
			err = errors.Join(err, fmt.Errorf("read the table filter of %s: %w", f.program, tableErr))
			continue
		}
		if len(table) < underflow+f.targetOffset+2 {
			continue
		}
		at := underflow + int(binary.NativeEndian.Uint16(table[underflow+f.targetOffset:])) + targetSize
		if len(table) < at+4 || int32(binary.NativeEndian.Uint32(table[at:])) != verdictDrop {
			continue
		}
		chain := Chain{Name: "chain FORWARD of the older " + f.program, Why: "policy drop"}
		chain.Owner = ownerOf(strings.FieldsFunc(string(table), func(r rune) bool { return r < '!' || r > '~' }))
		found = append(found, chain)
	}
	return found, err
}

// readTable returns the entries of the table filter, and where the policy of the chain FORWARD is.
func readTable(family, level int) (entries []byte, policy int, err error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, 0, err
	}
	defer unix.Close(fd)
	info := tableInfo{}
	copy(info.name[:], "filter")
	if err := getsockopt(fd, level, getInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
		return nil, 0, err
	}
	const header = 40 // struct ipt_get_entries: the name and the size
	buffer := make([]byte, header+int(info.tableSize))
	copy(buffer, "filter")
	binary.NativeEndian.PutUint32(buffer[32:], info.tableSize)
	err = getsockopt(fd, level, getEntries, unsafe.Pointer(&buffer[0]), uintptr(len(buffer)))
	return buffer[header:], int(info.underflow[hookForward]), err
}

func getsockopt(fd, level, option int, to unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(to), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
