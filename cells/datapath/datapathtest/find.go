package datapathtest

import (
	"maps"
	"net/netip"

	"porin.dev/porin/cells/datapath"
)

// HostRoutes returns the addresses of what is wired.
func (k *Kernel) HostRoutes() (map[int][]netip.Addr, error) {
	unlock, err := k.lock("HostRoutes")
	defer unlock()
	led := map[int][]netip.Addr{}
	for index, e := range k.wired {
		led[index] = e.Addresses.List()
	}
	return led, err
}

// Entries returns the entries by link.
func (k *Kernel) Entries() (map[int]datapath.Entry, error) {
	unlock, err := k.lock("Entries")
	defer unlock()
	return maps.Clone(k.byLink), err
}
