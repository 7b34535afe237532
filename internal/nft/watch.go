package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// Watch returns a channel that receives a token when the table was changed, by Apply or by another program: time for
// another Apply. It is closed when ctx ends, and when notifications were lost, and must be read to its end.
func (o *Owner) Watch(ctx context.Context) (_ <-chan struct{}, err error) {
	var notifications <-chan syscall.NetlinkMessage
	err = netns.In(int(o.namespace.Fd()), func() error {
		notifications, err = nl.Watch(ctx, unix.NETLINK_NETFILTER, groupNFTables)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("watch the nftables ruleset: %w", err)
	}
	o.forgetNoTable() // earlier changes were not notified
	changes := make(chan struct{}, 1)
	go func() {
		defer close(changes)
		for m := range notifications {
			if !o.table.isOurs(m.Data) {
				continue
			}
			o.forgetNoTable()
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	}()
	return changes, nil
}

// ErrLost is returned when the kernel has dropped notifications.
var ErrLost = errors.New("the kernel has dropped notifications of nftables")

// Follow calls repair at once and after each change of the table, until repair fails or ctx ends.
func (o *Owner) Follow(ctx context.Context, repair func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := o.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		for range changes { // to its end
		}
	}()
	for {
		if err := repair(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case _, open := <-changes:
			if !open && ctx.Err() == nil {
				return ErrLost
			}
		}
	}
}

// isOurs reports whether the notification is about the table: tables, chains, rules, sets and elements all have its
// name as the attribute 1, which is the first one.
func (t *Table) isOurs(data []byte) bool {
	const header = 4
	if len(data) < nfgenmsgLen+header || data[0] != byte(nftables.TableFamilyINet) {
		return false
	}
	attribute := data[nfgenmsgLen:]
	size := int(binary.NativeEndian.Uint16(attribute))
	return size >= header && size <= len(attribute) && binary.NativeEndian.Uint16(attribute[2:]) == 1 &&
		bytes.Equal(attribute[header:size], []byte(t.Name+"\x00"))
}
