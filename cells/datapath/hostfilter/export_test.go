package hostfilter

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Generation is the number of the last transaction of nftables in the namespace.
func Generation(namespace *os.File) (generation uint32, err error) {
	k, err := connect(namespace)
	if err != nil {
		return 0, err
	}
	generation, err = k.generation()
	return generation, errors.Join(err, k.close())
}

// Refused is what Apply says of the kernel's refusal.
func Refused(errno unix.Errno) error { return explain("change the table of nftables", errno) }
