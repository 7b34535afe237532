package hostfilter

import (
	"os"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nft"
)

// Generation is the number of the last transaction of nftables in the namespace.
func Generation(namespace *os.File) (uint32, error) {
	owner := nft.New(namespace, table, nil)
	defer owner.Close()
	return owner.Generation()
}

// Refused is what Apply says of the kernel's refusal.
func Refused(errno unix.Errno) error { return table.Explain("change the table of nftables", errno) }
