package tunnel

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/tchook"
)

// Config says where the tunnel is.
type Config struct {
	BPFRoot string // a folder of a BPF file system; the tunnel's pins are in a folder below it
	Port    int    // UDP, of all nodes
}

// Desired is what the tunnel should be.
type Desired struct {
	MTU       int          // of the device
	Addresses []netip.Addr // of the device, which are of this node's blocks
	Owners    map[netip.Prefix]Owner
	Devices   []netip.Addr // addresses of the other nodes' devices
	// Keeps reports whether an entry stays that is not among Owners.
	Keeps func(netip.Prefix, Owner) bool
}

// Tunnel is the tunnel of one network namespace.
type Tunnel struct {
	cfg       Config
	log       *slog.Logger
	handle    *netlink.Handle
	namespace *os.File
	hooks     []*tchook.Hook // in the order of attaching: no packets come in before they are verified
	rules     *Rules

	mu      sync.Mutex // guards the fields below; held while the tunnel is changed
	objects *objects   // nil until Apply
}

// New returns the tunnel of a network namespace, which it does not touch. The handle, a socket in it, and the namespace
// must stay open until Close.
func New(cfg Config, handle *netlink.Handle, namespace *os.File, log *slog.Logger) *Tunnel {
	t := &Tunnel{cfg: cfg, log: log, handle: handle, namespace: namespace, rules: NewRules(namespace, cfg.Port, log)}
	for _, side := range sides {
		t.hooks = append(t.hooks, &tchook.Hook{Side: side, TCX: loader.HasTCX(), Handle: handle, Namespace: namespace})
	}
	return t
}

// sides are the sides of the device. Other programs there run, too: to_uplink before to_tunnel, and from_uplink behind
// from_tunnel. As a filter, each is behind to_uplink's priority and before from_uplink's.
var sides = []tchook.Side{
	{Program: bpf.FromTunnel, Ingress: true, First: true, Priority: 2},
	{Program: bpf.ToTunnel, Priority: 2},
}

// Close leaves the tunnel as it is.
func (t *Tunnel) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.objects.close()
	return t.rules.Close()
}

func (t *Tunnel) root() string { return filepath.Join(t.cfg.BPFRoot, "tunnel") }

// Rules are the nftables rules about packets of tunnels.
func (t *Tunnel) Rules() *Rules { return t.rules }

// Port is the UDP port.
func (t *Tunnel) Port() int { return t.cfg.Port }

// Prepare makes the device, which stays down, if there is none: its error is that there cannot be a tunnel.
func (t *Tunnel) Prepare(mtu int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.device(mtu)
	return err
}

// Apply makes the tunnel as desired, and returns the index of the device. After an error it may be so in part; the
// device is up only if both programs are on it: then the index is another than 0.
func (t *Tunnel) Apply(d Desired) (index int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rulesErr := t.applyRules(d)
	device, err := t.device(d.MTU)
	if err != nil {
		return 0, err
	}
	programsErr := t.applyPrograms(device, d)
	if programsErr != nil && !errors.Is(programsErr, errFull) {
		return 0, errors.Join(programsErr, t.handle.LinkSetDown(device))
	}
	if err := t.up(device); err != nil {
		return 0, err
	}
	return device.Index, errors.Join(t.addresses(device, d.Addresses), rulesErr, programsErr)
}

func (t *Tunnel) applyRules(d Desired) error {
	var sources, pods []netip.Prefix
	var nodes []netip.Addr
	for prefix, owner := range d.Owners {
		if owner.Pods {
			pods = append(pods, prefix)
		}
		if owner.Pods && !owner.Local.IsValid() {
			sources = append(sources, prefix)
		}
		if !owner.Pods && owner.Local.IsValid() {
			nodes = append(nodes, prefix.Addr())
		}
	}
	return t.rules.Apply(sources, pods, nodes, slices.Concat(d.Addresses, d.Devices))
}

func (t *Tunnel) applyPrograms(device *netlink.Vxlan, d Desired) (err error) {
	if t.objects == nil {
		if t.objects, err = load(t.root()); err != nil {
			return err
		}
	}
	ownersErr := t.writeOwners(d)
	if ownersErr != nil && !errors.Is(ownersErr, errFull) {
		return ownersErr
	}
	detached, err := t.detached(device.Index)
	if err != nil {
		return err
	}
	for _, one := range detached {
		if err := one.Attach(device.Index, one.program, one.id); err != nil {
			return err
		}
		t.log.Info("program attached to the VXLAN device", "ifname", Device, "prog", one.Program)
	}
	return errors.Join(ownersErr, removeOthers(t.root()))
}

// Device returns the index and the addresses of the device; 0 when there is none.
func (t *Tunnel) Device() (index int, addrs []netip.Addr, err error) {
	d, err := t.find()
	if d == nil || err != nil {
		return 0, nil, err
	}
	addrs, err = t.addressesOf(d)
	return d.Index, addrs, err
}

// Intact reports whether the device is up and has the programs: what no notification tells of when it changes.
func (t *Tunnel) Intact() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.find()
	if err != nil || d == nil || t.objects == nil || d.RawFlags&unix.IFF_UP == 0 {
		return false
	}
	off, err := t.detached(d.Index)
	return err == nil && len(off) == 0
}

// Compare says what is not as desired, and changes nothing.
func (t *Tunnel) Compare(want Desired) (differences []string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.find()
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return []string{"there is no " + Device}, nil
	case !d.FlowBased || d.Port != t.cfg.Port || d.Learning:
		return []string{Device + " is not as it was made"}, nil
	case d.RawFlags&unix.IFF_UP == 0:
		return []string{Device + " is down"}, nil
	case d.RawFlags&unix.IFF_NOARP == 0:
		differences = append(differences, Device+" asks for link addresses")
	}
	if !slices.Equal(d.HardwareAddr, MAC) {
		differences = append(differences, fmt.Sprintf("the MAC of %s is %s instead of %s", Device, d.HardwareAddr, MAC))
	}
	if d.MTU != want.MTU {
		differences = append(differences, fmt.Sprintf("the MTU of %s is %d instead of %d", Device, d.MTU, want.MTU))
	}
	addrs, err := t.addressesOf(d)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	if wanted := slices.SortedFunc(slices.Values(want.Addresses), netip.Addr.Compare); !slices.Equal(addrs, wanted) {
		differences = append(differences, fmt.Sprintf("%s has the addresses %v instead of %v", Device, addrs, wanted))
	}
	if t.objects == nil {
		return differences, nil
	}
	off, err := t.detached(d.Index)
	for _, one := range off {
		differences = append(differences, fmt.Sprintf("%s is not on %s", one.Program, Device))
	}
	if err != nil {
		return differences, err
	}
	owners, err := t.compareOwners(want)
	differences = append(differences, owners...)
	if err != nil {
		return differences, err
	}
	rules, err := t.rules.Compare()
	return append(differences, rules...), err
}

// detached is a program that is not on the device.
type detached struct {
	*tchook.Hook
	program *ebpf.Program
	id      uint32
}

// detached returns the programs that are not on the device, in the order of attaching.
func (t *Tunnel) detached(index int) (list []detached, err error) {
	programs := t.objects.byName()
	for _, hook := range t.hooks {
		program := *programs[hook.Program]
		info, err := program.Info()
		if err != nil {
			return nil, err
		}
		at, err := hook.Find(index)
		if err != nil {
			return nil, err
		}
		if id, _ := info.ID(); at != uint32(id) {
			list = append(list, detached{hook, program, uint32(id)})
		}
	}
	return list, nil
}

// Remove removes the device, with the programs on it, and the pins.
func (t *Tunnel) Remove() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	d, err := t.find()
	if errors.Is(err, ErrForeign) {
		err = nil
	}
	if d != nil {
		if err = t.handle.LinkDel(d); err == nil {
			t.log.Info("VXLAN device removed: no node needs it", "ifname", Device)
		}
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", Device, err)
	}
	t.objects.close()
	t.objects = nil
	if err := t.rules.Remove(); err != nil {
		return err
	}
	if err := os.RemoveAll(t.root()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Drops are what the programs have dropped since the tunnel was made.
func (t *Tunnel) Drops() (sum abi.TunnelDrops, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.objects == nil {
		return sum, nil
	}
	var each []abi.TunnelDrops
	if err := t.objects.drops.Lookup(uint32(0), &each); err != nil {
		return sum, fmt.Errorf("read what the tunnel has dropped: %w", err)
	}
	for _, one := range each {
		sum.Add(one)
	}
	return sum, nil
}

// Why there is no tunnel.
var (
	ErrUnsupported = fault.WithHint(fault.New(fault.Unavailable, "kernel lacks VXLAN, or the metadata of tunnels in BPF programs"),
		"run modprobe vxlan, or a kernel of Linux 6.0 or later with CONFIG_VXLAN; or give the agent --routing native or external")
	ErrForeign = fault.WithHint(fault.New(fault.Conflict, "there is an interface "+Device+" that is no VXLAN device of Porin"),
		"remove it, or rename it")
	ErrPort = fault.WithHint(fault.New(fault.Conflict, "somebody else receives at the UDP port of the tunnel"),
		"remove the other VXLAN device, or give all agents another --vxlan-port")
)
