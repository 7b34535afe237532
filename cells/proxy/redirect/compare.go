package redirect

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	porinlink "porin.dev/porin/cells/link"
	"porin.dev/porin/internal/fd"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// Part is a part of the way into the proxy.
type Part int

// The parts there are.
const (
	PartDevice   Part = iota // the device, its settings, and that it is Porin's
	PartRoutes               // the routing table and the rules
	PartTable                // the table of nftables
	PartListener             // the program select_listener, its sockets, and the device that the programs know
)

// Difference is something that is not as Open has made it.
type Difference struct {
	Part    Part
	Subject string
	Detail  string
	Foreign bool // the object is not Porin's: Repair leaves it
}

// Compare says what is not as it should be, and changes nothing. There is nothing to compare unless the way is open.
func (r *Redirect) Compare() ([]Difference, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil || r.handedOver {
		return nil, nil
	}
	differences, err := r.compareLocked()
	if r.follower.IsContested(owner) {
		for i := range differences {
			differences[i].Detail += "; " + reconcile.Contested
		}
	}
	return differences, err
}

func (r *Redirect) compareLocked() (all []Difference, err error) {
	device, index, err := r.compareDevice()
	routes, routesErr := r.compareRoutes()
	table, tableErr := r.divert.Compare()
	for _, detail := range table {
		all = append(all, Difference{Part: PartTable, Subject: "table inet " + tableName, Detail: detail})
	}
	listener, listenerErr := r.compareListener(index)
	return slices.Concat(device, routes, all, listener), errors.Join(err, routesErr, tableErr, listenerErr)
}

// compareDevice returns the index 0 without the device.
func (r *Redirect) compareDevice() (differences []Difference, index int, err error) {
	differs := func(subject, format string, args ...any) {
		differences = append(differences, Difference{Part: PartDevice, Subject: subject, Detail: fmt.Sprintf(format, args...)})
	}
	subject := "link " + porinlink.ProxyDevice
	found, err := r.findDevice()
	if errors.Is(err, errForeign) {
		return []Difference{{Part: PartDevice, Subject: subject, Detail: err.Error(), Foreign: true}}, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if found == nil {
		differs(subject, "it is missing")
		return differences, 0, nil
	}
	index = found.Attrs().Index
	if has := found.Attrs().HardwareAddr; !slices.Equal(has, mac) {
		differs(subject, "its MAC is %s instead of %s", has, mac)
	}
	for _, name := range []string{porinlink.ProxyDevice, porinlink.ProxyDevicePeer} {
		end, endErr := r.linkByName(name)
		switch {
		case endErr != nil:
			err = errors.Join(err, endErr)
		case end == nil:
			differs("link "+name, "it is missing")
		case end.Attrs().RawFlags&unix.IFF_UP == 0:
			differs("link "+name, "it is down")
		}
	}
	addrs, addrsErr := nl.Dump(func() ([]netlink.Addr, error) { return r.handle.AddrList(found, unix.AF_INET) })
	if addrsErr != nil {
		err = errors.Join(err, fmt.Errorf("list the addresses of %s: %w", porinlink.ProxyDevice, addrsErr))
	} else if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(dummyAddress.AsSlice()) }) {
		differs(subject, "it has no address %s: the kernel's reverse path filter drops what comes by it", dummyAddress)
	}
	sysctlErr := r.namespace.Load().do(func() error {
		wrong, err := wrongSysctls()
		for _, name := range slices.Sorted(maps.Keys(wrong)) {
			differs(subject, "sysctl %s is %s instead of %s", strings.ReplaceAll(name, "/", "."), wrong[name], sysctls[name])
		}
		return err
	})
	return differences, index, errors.Join(err, sysctlErr)
}

// compareRoutes compares the families that the kernel has.
func (r *Redirect) compareRoutes() (differences []Difference, err error) {
	for _, family := range families {
		differs := func(subject, detail string) {
			differences = append(differences, Difference{Part: PartRoutes, Subject: subject + " of " + familyNames[family], Detail: detail})
		}
		local, err := r.local(family)
		if err != nil {
			return nil, err
		}
		routes, err := r.listRoutes(family)
		if family == unix.AF_INET6 && noFamily(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the routes of table %d: %w", table, err)
		}
		if !slices.ContainsFunc(routes, func(route netlink.Route) bool { return isLocal(route, local) }) {
			differs(fmt.Sprintf("routing table %d", table), "the route that delivers packets to this node is missing")
		}
		if slices.ContainsFunc(routes, func(route netlink.Route) bool { return !isLocal(route, local) }) {
			differs(fmt.Sprintf("routing table %d", table), "it has a route that is not of Porin")
		}
		have, err := nl.Dump(func() ([]netlink.Rule, error) { return r.handle.RuleList(family) })
		if err != nil {
			return nil, fmt.Errorf("list the routing rules: %w", err)
		}
		for _, rule := range rules(family) {
			if !slices.ContainsFunc(have, func(other netlink.Rule) bool { return selectsSame(other, rule) && other.Table == rule.Table }) {
				differs(fmt.Sprintf("routing rule %d", rule.Priority), "it is missing")
			}
			if slices.ContainsFunc(have, func(other netlink.Rule) bool { return selectsSame(other, rule) && other.Table != rule.Table }) {
				differs(fmt.Sprintf("routing rule %d", rule.Priority), "there is another one for the same packets, with another table")
			}
		}
	}
	return differences, nil
}

// compareListener expects the index of the device. With 0 there is none, and nothing to compare with.
func (r *Redirect) compareListener(index int) (differences []Difference, err error) {
	if index == 0 {
		return nil, nil
	}
	differs := func(detail string) {
		differences = append(differences, Difference{Part: PartListener, Subject: "program " + bpf.SelectListener, Detail: detail})
	}
	known, err := r.link.ProxyLink()
	if err == nil && known != index {
		differs(fmt.Sprintf("the programs redirect by the device with index %d instead of %d", known, index))
	}
	if detail := r.listeners.compare(r.cfg.pin(), index, r.link); detail != "" {
		differs(detail)
	}
	return differences, err
}

// compare returns what is wrong with the program, its link and its sockets, "" if nothing is.
func (l *Listeners) compare(pin string, device int, programs Link) string {
	if l.program == nil {
		return "it is not loaded"
	}
	if l.device != device {
		return fmt.Sprintf("it is for the device with index %d instead of %d", l.device, device)
	}
	attached, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return "it is not attached"
	}
	if err != nil {
		return fmt.Sprintf("its link cannot be opened: %v", err)
	}
	defer attached.Close()
	info, err := attached.Info()
	if err != nil {
		return fmt.Sprintf("its link cannot be read: %v", err)
	}
	own, err := l.program.Info()
	if err != nil {
		return fmt.Sprintf("it cannot be read: %v", err)
	}
	namespace, err := l.namespace.inode()
	if err != nil {
		return fmt.Sprintf("the network namespace cannot be read: %v", err)
	}
	switch id, known := own.ID(); {
	case !known || info.Program != id:
		return "its link has another program"
	case info.NetNs() == nil || uint64(info.NetNs().NetnsInode) != namespace:
		return "its link is not attached to the node's network namespace"
	}
	if err := programs.UseMaps(func(shared map[string]*ebpf.Map) error { return sharesMaps(own, shared) }); err != nil {
		return err.Error()
	}
	for index, socket := range l.all() {
		var cookie, want uint64
		err := fd.Do(socket, func(fd int) (err error) {
			want, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			return err
		})
		if err != nil || l.sockets.Lookup(index, &cookie) != nil || cookie != want {
			return fmt.Sprintf("its map %s lacks socket %d", bpf.Listeners, index)
		}
	}
	return ""
}

// sharesMaps returns why a program does not use the maps that other programs do: an updated agent may have replaced
// them.
func sharesMaps(program *ebpf.ProgramInfo, shared map[string]*ebpf.Map) error {
	used, known := program.MapIDs()
	if !known {
		return nil
	}
	for name, m := range shared {
		info, err := m.Info()
		if err != nil {
			return fmt.Errorf("the map %s cannot be read: %w", name, err)
		}
		if id, known := info.ID(); known && !slices.Contains(used, id) {
			return fmt.Errorf("it does not use the map %s of the other programs", name)
		}
	}
	return nil
}

// Damage returns why the last Repair failed, nil if it has not. It does not wait for others.
func (r *Redirect) Damage() error {
	if text := r.damage.Load(); text != nil {
		return errors.New(*text)
	}
	return nil
}

// Repair makes everything as Open has. Others' objects stay. It does nothing unless the way is open.
func (r *Redirect) Repair() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil || r.handedOver {
		return nil
	}
	differences, err := r.compareLocked()
	for _, d := range differences {
		r.log.Warn("the way into the proxy is damaged, and is repaired", "subject", d.Subject, "detail", d.Detail)
	}
	r.damage.Store(nil)
	if err == nil && len(differences) == 0 {
		return nil
	}
	if err = r.openLocked(); err != nil {
		err = fmt.Errorf("repair the way into the proxy: %w", err)
		r.damage.Store(new(err.Error()))
	}
	return err
}

// listRoutes lists the routes of the table.
func (r *Redirect) listRoutes(family int) ([]netlink.Route, error) {
	return nl.Dump(func() ([]netlink.Route, error) {
		return r.handle.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
}

func isLocal(route netlink.Route, local *netlink.Route) bool {
	return route.Type == local.Type && route.LinkIndex == local.LinkIndex && (route.Dst == nil || nl.Prefix(route.Dst).Bits() == 0)
}

// selectsSame reports whether a rule is for the same packets as one of Porin's.
func selectsSame(have netlink.Rule, want *netlink.Rule) bool {
	sameMask := want.Mask == nil && have.Mask == nil || want.Mask != nil && have.Mask != nil && *want.Mask == *have.Mask
	return have.Priority == want.Priority && have.Mark == want.Mark && sameMask && have.IifName == want.IifName &&
		!have.Invert && have.Src == nil && have.Dst == nil && have.OifName == "" && have.Tos == 0 && have.IPProto == 0
}
