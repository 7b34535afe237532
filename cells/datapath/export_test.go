package datapath

import (
	"log/slog"

	"github.com/vishvananda/netlink"
)

// Upgrade makes the datapath that of another version: the digest of its object is another.
func (d *Datapath) Upgrade() { d.loader.object = append([]byte("another"), d.loader.object...) }

// StartAndCrash does what a start does until after so many operations of the publication of its maps, and lets go of
// everything, as the end of the process would. It is false when there are fewer.
func StartAndCrash(cfg Config, log *slog.Logger, operations int) (bool, error) {
	d, err := New(cfg, log)
	if err != nil {
		return false, err
	}
	loaded, err := d.loader.prepare()
	if err != nil {
		return false, err
	}
	defer loaded.close()
	publication := loaded.maps.publication(cfg)
	for _, operation := range publication[:min(operations, len(publication))] {
		if err := operation(); err != nil {
			return false, err
		}
	}
	return operations <= len(publication), nil
}

// RouteFlaws is what is wrong with the routes of an entry of which nothing was seen.
func RouteFlaws(handle *netlink.Handle, e Entry) ([]string, error) {
	flaws, err := routeFlaws(handle, e, observed{})
	return describeFlaws(flaws), err
}
