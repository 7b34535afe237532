package nft

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/nl"
)

const groupNFTables = 7 // NFNLGRP_NFTABLES

// Run restores the table as it was applied last when another program has changed it, and when that failed, until ctx
// ends.
func (o *Owner) Run(ctx context.Context) error { return o.follower.Run(ctx) }

// Watch returns a channel that receives the name of the table when another program may have changed it, and when an
// Apply has failed. It is closed when ctx ends, and when notifications were lost, and must be read to its end.
func (o *Owner) Watch(ctx context.Context) (<-chan string, error) {
	notifications, err := nl.WatchIn(ctx, o.namespace, unix.NETLINK_NETFILTER, groupNFTables)
	if err != nil {
		return nil, fmt.Errorf("watch the nftables ruleset: %w", err)
	}
	o.resetNoTable() // earlier changes were not notified
	changes := make(chan string)
	go func() {
		defer close(changes)
		for {
			select {
			case m, open := <-notifications:
				if !open {
					return
				}
				if !o.table.isOurs(m.Data) {
					continue
				}
				o.resetNoTable()
			case <-o.failed:
			}
			changes <- o.table.Name
		}
	}()
	return changes, nil
}

// source is the [reconcile.Source] of one table.
type source struct{ *Owner }

func (s source) Owners() []string { return []string{s.table.Name} }

func (s source) Differs(string) (bool, error) {
	differences, err := s.Compare()
	return len(differences) > 0, err
}

func (s source) Repair(context.Context, string) error { return s.Owner.Repair() }

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
