package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/fault"
)

// Owner is the node that has a prefix.
type Owner struct {
	Addresses []netip.Addr // of the node: packets of it are from one of them
	// Local is this node's address, of the family in which packets are sent to the node; the zero Addr for this node.
	Local netip.Addr
	Pods  bool // the prefix is of pods; else it is an address of the node
}

// Owners are the entries of the map.
func (t *Tunnel) Owners() (map[netip.Prefix]Owner, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[netip.Prefix]Owner{}
	if t.objects == nil {
		return out, nil
	}
	values, err := readOwners(t.objects.owners)
	for prefix, value := range values {
		out[prefix] = ownerOf(value)
	}
	return out, err
}

// errFull is returned when the nodes of the cluster have more prefixes than the map takes. The entries of the map are
// right.
var errFull = fault.New(fault.Exhausted, "the nodes of the cluster have too many blocks: packets of those that do not fit are dropped")

// writeOwners makes the map as desired, or returns [errFull]. An entry of a shorter prefix stays until the longer one's
// is there; when the map is full, unwanted entries go first.
func (t *Tunnel) writeOwners(d Desired) error {
	has, err := readOwners(t.objects.owners)
	if err != nil {
		return err
	}
	writeErr := t.putOwners(d, has)
	for prefix, owner := range has {
		if _, ok := d.Owners[prefix]; ok || d.Keeps != nil && d.Keeps(prefix, ownerOf(owner)) {
			continue
		}
		if err := t.objects.owners.Delete(abi.CIDRKeyOf(prefix)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove the node of %s: %w", prefix, err)
		}
		delete(has, prefix)
	}
	if writeErr != nil {
		return t.putOwners(d, has)
	}
	return nil
}

// putOwners writes what the map does not have, this node's own first: without that, no packet would come in.
func (t *Tunnel) putOwners(d Desired, has map[netip.Prefix]abi.Owner) error {
	var full error
	ownFirst := func(a, b netip.Prefix) int {
		if own := d.Owners[a].Local.IsValid(); own != d.Owners[b].Local.IsValid() {
			if own {
				return 1
			}
			return -1
		}
		return a.Compare(b)
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(d.Owners), ownFirst) {
		owner := valueOf(d.Owners[prefix])
		is, ok := has[prefix]
		if ok && is == owner || !ok && full != nil {
			continue
		}
		switch err := t.objects.owners.Put(abi.CIDRKeyOf(prefix), owner); {
		case errors.Is(err, unix.ENOSPC): // of an LPM trie
			full = fmt.Errorf("%w: at %d, %s of %v", errFull, len(d.Owners), prefix, d.Owners[prefix].Addresses)
		case err != nil:
			return fmt.Errorf("write the node of %s: %w", prefix, err)
		}
	}
	return full
}

// compareOwners compares the map.
func (t *Tunnel) compareOwners(want Desired) (differences []string, err error) {
	has, err := readOwners(t.objects.owners)
	if err != nil {
		return nil, err
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(want.Owners), netip.Prefix.Compare) {
		if is, ok := has[prefix]; !ok || is != valueOf(want.Owners[prefix]) {
			differences = append(differences, fmt.Sprintf("the map %s has no or another node for %s", bpf.Owners, prefix))
		}
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(has), netip.Prefix.Compare) {
		if _, ok := want.Owners[prefix]; !ok && (want.Keeps == nil || !want.Keeps(prefix, ownerOf(has[prefix]))) {
			differences = append(differences, fmt.Sprintf("the map %s has a node for %s", bpf.Owners, prefix))
		}
	}
	return differences, nil
}

func readOwners(m *ebpf.Map) (map[netip.Prefix]abi.Owner, error) {
	all := map[netip.Prefix]abi.Owner{}
	var key abi.CIDRKey
	var value abi.Owner
	entries := m.Iterate()
	for entries.Next(&key, &value) {
		all[key.Prefix()] = value
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read which node has which prefix: %w", err)
	}
	return all, nil
}

// valueOf is the owner as the map has it.
func valueOf(o Owner) (value abi.Owner) {
	for _, addr := range o.Addresses {
		if addr.Is4() {
			value.Ipv4 = abi.AddrOf(addr)
		} else {
			value.Ipv6 = abi.AddrOf(addr)
		}
	}
	value.Local = abi.AddrOf(o.Local)
	if o.Pods {
		value.Flags |= abi.OwnerPods
	}
	if !o.Local.IsValid() {
		value.Flags |= abi.OwnerSelf
	} else if o.Local.Is6() {
		value.Flags |= abi.OwnerIPv6
	}
	return value
}

// ownerOf is the reverse of valueOf.
func ownerOf(value abi.Owner) (o Owner) {
	for _, addr := range []abi.Addr{value.Ipv4, value.Ipv6} {
		if ip := addr.IP(); ip.IsValid() {
			o.Addresses = append(o.Addresses, ip)
		}
	}
	o.Local, o.Pods = abi.Addr(value.Local).IP(), value.Flags&abi.OwnerPods != 0
	return o
}
