package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/nl"
)

// parallel bounds the programs that run at once.
const parallel = 16

// maxRoutes bounds the routes of one container: the kernel takes some microseconds for each.
const maxRoutes = 512

// Plugins calls IPAM plugins. All methods may be called concurrently, and block until the program has ended or ctx has.
type Plugins struct {
	cfg   Config
	slots chan struct{}
	locks locks
}

// New returns the plugins of a node.
func New(cfg Config) *Plugins {
	return &Plugins{cfg: cfg, slots: make(chan struct{}, parallel), locks: locks{waiting: map[string]time.Time{}}}
}

// Call is what a plugin is called with.
type Call struct {
	endpoint.IPAMPlugin
	Attachment endpoint.Attachment // the zero one for STATUS and GC
	NetNS      string              // path, as the caller named it
}

// CallOf is what the plugin of an endpoint is called with.
func CallOf(spec endpoint.Spec) Call {
	return Call{IPAMPlugin: spec.IPAM, Attachment: spec.Attachment, NetNS: spec.NetNS}
}

// Add has the plugin give addresses: at most one of each family. After an error it may have given some, and Del takes
// them back.
func (p *Plugins) Add(ctx context.Context, call Call) (endpoint.Addresses, endpoint.IPAMResult, error) {
	var result types.Result
	err := p.do(ctx, "ADD", call, func(path string, args invoke.CNIArgs, exec invoke.Exec) (err error) {
		result, err = invoke.ExecPluginWithResult(ctx, path, []byte(call.Config), args, exec)
		return err
	})
	if err != nil {
		return endpoint.Addresses{}, endpoint.IPAMResult{}, err
	}
	addresses, parsed, err := parse(result)
	if err != nil {
		err = fault.Wrap(fault.Invalid, fmt.Errorf("answer of the IPAM plugin %s: %w: correct \"ipam\" in the network configuration", call.Type, err))
	}
	return addresses, parsed, err
}

// Del has the plugin take back what it gave to the attachment.
func (p *Plugins) Del(ctx context.Context, call Call) error { return p.run(ctx, "DEL", call) }

// Check, Status and GC have the plugin do that command. One that does not know the command has nothing to say about the
// matter.
func (p *Plugins) Check(ctx context.Context, call Call) error {
	return known(p.run(ctx, "CHECK", call))
}

// GC is described with Check.
func (p *Plugins) GC(ctx context.Context, call Call) error { return known(p.run(ctx, "GC", call)) }

// Status is described with Check. A plugin that does not know it fails when it does not speak the configuration's
// version: it would refuse every ADD.
func (p *Plugins) Status(ctx context.Context, call Call, cniVersion string) error {
	err := p.run(ctx, "STATUS", call)
	if known(err) != nil || err == nil {
		return err
	}
	return p.speaks(ctx, call, cniVersion)
}

// known takes a plugin's word that it does not know the command for a success: it is older than CHECK (0.4.0), GC and
// STATUS (1.1.0).
func known(err error) error {
	if e, ok := errors.AsType[*types.Error](err); ok && e.Code == types.ErrInvalidEnvironmentVariables {
		return nil
	}
	return err
}

func (p *Plugins) speaks(ctx context.Context, call Call, cniVersion string) error {
	var info version.PluginInfo
	err := p.do(ctx, "VERSION", call, func(path string, _ invoke.CNIArgs, exec invoke.Exec) (err error) {
		info, err = invoke.GetVersionInfo(ctx, path, exec)
		return err
	})
	if err != nil || slices.Contains(info.SupportedVersions(), cniVersion) {
		return nil // it does not know VERSION either, and may look at no version
	}
	return fault.New(fault.Invalid, fmt.Sprintf("the IPAM plugin %s does not speak CNI %s, but %.200s: install a later one, or change cniVersion",
		call.Type, cniVersion, strings.Join(info.SupportedVersions(), ", ")))
}

func (p *Plugins) run(ctx context.Context, command string, call Call) error {
	return p.do(ctx, command, call, func(path string, args invoke.CNIArgs, exec invoke.Exec) error {
		return invoke.ExecPluginWithoutResult(ctx, path, []byte(call.Config), args, exec)
	})
}

// do waits for its turn and calls f with the plugin.
func (p *Plugins) do(ctx context.Context, command string, call Call, f func(path string, args invoke.CNIArgs, exec invoke.Exec) error) error {
	doing := fmt.Sprintf("%s by the IPAM plugin %.64s", command, call.Type)
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%s: wait for other plugins: %w", doing, ctx.Err())
	}
	exec := &runner{hostRoot: p.cfg.HostRoot}
	path, err := exec.FindInPath(call.Type, p.cfg.BinDirs)
	if err != nil {
		return err
	}
	if call.Attachment != (endpoint.Attachment{}) {
		if exec.lock, err = p.locks.acquire(ctx, call.Attachment.String()); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
		if exec.lock != nil {
			defer exec.lock.Close()
		}
	}
	if err := f(path, p.environment(command, call), exec); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// environment is all that a plugin's environment has.
type environment []string

// AsEnv implements invoke.CNIArgs.
func (e environment) AsEnv() []string { return e }

func (p *Plugins) environment(command string, call Call) environment {
	env := environment{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"CNI_COMMAND=" + command, "CNI_PATH=" + strings.Join(p.cfg.BinDirs, string(filepath.ListSeparator)),
	}
	if call.Attachment != (endpoint.Attachment{}) {
		env = append(env, "CNI_CONTAINERID="+call.Attachment.ContainerID, "CNI_IFNAME="+call.Attachment.IfName,
			"CNI_NETNS="+call.NetNS, "CNI_ARGS="+call.Args)
	}
	return env
}

// parse reads a result of any version. Prefix lengths do not matter, as a container has its address alone; nor do the
// next hops of routes, as on a veth there is one; nor routes of other tables.
func parse(result types.Result) (a endpoint.Addresses, r endpoint.IPAMResult, err error) {
	newest, err := types100.NewResultFromResult(result)
	if err != nil {
		return a, r, err
	}
	for _, ip := range newest.IPs {
		addr, gateway := nl.Addr(ip.Address.IP), nl.Addr(ip.Gateway)
		slot, beside := &a.IPv6, &r.Gateways.IPv6
		if addr.Is4() {
			slot, beside = &a.IPv4, &r.Gateways.IPv4
		}
		if slot.IsValid() {
			return a, r, fmt.Errorf("the addresses %s and %s are of one family, and one is the most", *slot, addr)
		}
		*slot = addr
		if gateway.IsValid() && gateway.Is4() == addr.Is4() {
			*beside = gateway
		}
	}
	if a == (endpoint.Addresses{}) {
		return a, r, errors.New("it has no address")
	}
	for _, route := range newest.Routes {
		ones, bits := route.Dst.Mask.Size()
		dst := netip.PrefixFrom(nl.Addr(route.Dst.IP), ones)
		if route.Dst.IP.To4() != nil && bits == 128 {
			dst = netip.PrefixFrom(dst.Addr(), ones-96)
		}
		if !dst.IsValid() {
			return a, r, fmt.Errorf("route to %s is malformed", route.Dst.String())
		}
		if ones > 0 && route.Table == nil { // the default route is made anyway
			r.Routes = append(r.Routes, dst.Masked())
		}
	}
	slices.SortFunc(r.Routes, netip.Prefix.Compare)
	if r.Routes = slices.Compact(r.Routes); len(r.Routes) > maxRoutes {
		return a, r, fmt.Errorf("it has %d routes, and %d is the most: all that leaves the container takes one way anyway", len(r.Routes), maxRoutes)
	}
	if !isEmptyDNS(newest.DNS) {
		r.DNS, err = json.Marshal(newest.DNS)
	}
	return a, r, err
}

func isEmptyDNS(dns types.DNS) bool {
	return len(dns.Nameservers) == 0 && dns.Domain == "" && len(dns.Search) == 0 && len(dns.Options) == 0
}
