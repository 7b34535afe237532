package nft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// DeleteTables deletes tables of family inet in the network namespace of the calling thread, and returns the names of
// tables that it has found.
func DeleteTables(names ...string) (deleted []string, err error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return nil, nil // a kernel without nf_tables has none
	}
	if err != nil {
		return nil, fmt.Errorf("list tables of nftables: %w", err)
	}
	for _, t := range tables {
		if slices.Contains(names, t.Name) {
			conn.DelTable(t)
			deleted = append(deleted, t.Name)
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, fmt.Errorf("delete tables of nftables: %w", err)
	}
	return deleted, nil
}
