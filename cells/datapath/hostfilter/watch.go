package hostfilter

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// Watch returns a channel that receives a token when the table was changed, by Apply or by another program: time for
// another Apply. It is closed when ctx ends, and when notifications were lost, and must be read to its end.
func (f *Filter) Watch(ctx context.Context) (_ <-chan struct{}, err error) {
	var notifications <-chan syscall.NetlinkMessage
	err = netns.In(int(f.namespace.Fd()), func() error {
		notifications, err = nl.Watch(ctx, unix.NETLINK_NETFILTER, groupNFTables)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch the nftables ruleset: %w", err)
	}
	f.forgetNoTable() // what was changed before was not told
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for m := range notifications {
			if !isOurs(m.Data) {
				continue
			}
			f.forgetNoTable()
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}

// isOurs reports whether the notification is about the table: tables, chains, rules, sets and elements all have its
// name as the attribute 1, which is the first one.
func isOurs(data []byte) bool {
	const header = 4
	if len(data) < nfgenmsgLen+header || data[0] != byte(table.Family) {
		return false
	}
	attribute := data[nfgenmsgLen:]
	size := int(binary.NativeEndian.Uint16(attribute))
	return size >= header && size <= len(attribute) && binary.NativeEndian.Uint16(attribute[2:]) == 1 &&
		bytes.Equal(attribute[header:size], []byte(table.Name+"\x00"))
}
