package redirect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	porinlink "porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// Find names what Remove would remove, of a previous process. It expects that the way is not open, and changes nothing.
func (r *Redirect) Find() (names []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.openHandles(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if _, pinErr := os.Lstat(r.pin()); pinErr == nil {
		names = append(names, "pin "+r.pin())
	} else if !errors.Is(pinErr, fs.ErrNotExist) {
		err = pinErr
	}
	differences, tableErr := r.divert.owner.Compare(nil)
	if len(differences) > 0 {
		names = append(names, "table inet "+tableName)
	}
	for _, family := range families {
		have, rulesErr := nl.Dump(func() ([]netlink.Rule, error) { return r.handle.RuleList(family) })
		for _, rule := range rules(family) {
			if slices.ContainsFunc(have, func(other netlink.Rule) bool { return isRule(other, rule) }) {
				names = append(names, fmt.Sprintf("rule %d of %s", rule.Priority, familyNames[family]))
			}
		}
		routes, routesErr := r.listRoutes(family)
		local, localErr := r.local(family)
		if localErr == nil && slices.ContainsFunc(routes, func(route netlink.Route) bool { return isLocal(route, local) }) {
			names = append(names, fmt.Sprintf("route of table %d of %s", table, familyNames[family]))
		}
		if !noFamily(rulesErr) {
			err = errors.Join(err, rulesErr)
		}
		if !noFamily(routesErr) {
			err = errors.Join(err, routesErr)
		}
	}
	device, deviceErr := r.findDevice()
	if errors.Is(deviceErr, errForeign) {
		device, deviceErr = nil, nil
	}
	if device != nil {
		names = append(names, "link "+porinlink.ProxyDevice)
	}
	return names, errors.Join(err, tableErr, deviceErr)
}
