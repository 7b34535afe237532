// Package cleanup removes from a node all that Porin has made there: first what starts pods, then the kernel's part,
// then files.
//
// Each step removes what it finds, so a run that was interrupted is completed by the next one. The part of a cell is
// removed by the cell where it has a function for that. Things that others may have made, or may need, stay and are
// listed.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/cells/server"
)

// Config is the part of the agent's configuration that says where Porin is.
type Config struct {
	Server          server.Config
	EndpointManager endpointmanager.Config
	Health          health.Config
	ProxySocket     string
	BPFRoot         string
	StoreDir        string
	CNIConfPath     string   // "" for none
	PluginDirs      []string // which may have porin-cni
	Records         string   // what the left records in a shared store are, and how they are deleted; "" for none

	Force bool // also while pods use Porin
}

// Clean removes everything from the network namespace of the calling thread and from the file system, and reports each
// thing on out. It refuses, and changes nothing, while an agent, porin-proxy or pods use it.
func Clean(ctx context.Context, cfg Config, out io.Writer) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open a route-netlink socket: %w", err)
	}
	defer handle.Close()
	c := &cleaner{cfg: cfg, out: out, handle: handle}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	if err := c.checkPods(); err != nil {
		return errors.Join(err, unlock())
	}
	// The order: no further pods; what pods use; what depends on neither; the files that refusals need; folders.
	err = errors.Join(
		c.removeCNIConf(), c.removePlugins(), c.removeLinks(), c.removeProxyPath(), c.removeRoutes(), c.removeRules(), c.removeTables(), c.detachUplinks(),
		c.removePins(), c.removeHealthNamespace(), c.removeStore(), c.removeState(),
		unlock(), c.removeFolder(cfg.EndpointManager.StateDir), c.removeFolder(cfg.StoreDir),
	)
	if err != nil {
		return err
	}
	c.recordLeftSysctls()
	if cfg.Records != "" {
		c.recordLeft(cfg.Records)
	}
	for _, text := range c.left {
		fmt.Fprintln(out, "left", text)
	}
	return nil
}

// cleaner is one run.
type cleaner struct {
	cfg    Config
	out    io.Writer
	handle *netlink.Handle
	left   []string
}

func (c *cleaner) removed(kind, name string) { fmt.Fprintln(c.out, "removed", kind, name) }

func (c *cleaner) recordLeft(text string) { c.left = append(c.left, text) }

// lock keeps agents and proxies from starting until unlock is called. It fails if one runs, or if the agent ran in
// another network namespace.
func (c *cleaner) lock(ctx context.Context) (unlock func() error, err error) {
	dir := filepath.Dir(c.cfg.Server.Socket)
	_, statErr := os.Lstat(dir)
	agent, err := server.NewSocketLock(c.cfg.Server)
	if err == nil {
		err = agent.Acquire(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("no agent may run: %w", err)
	}
	var proxy *os.File // nil without a proxy
	unlock = func() error {
		_ = proxy.Close()
		if errors.Is(statErr, fs.ErrNotExist) { // Acquire has made it
			_, _ = os.Remove(c.cfg.Server.Socket+".lock"), os.Remove(dir)
		}
		return agent.Release()
	}
	if err := endpointmanager.CheckOrigin(c.cfg.EndpointManager); err != nil {
		return nil, errors.Join(err, unlock())
	}
	if proxy, err = control.Lock(c.cfg.ProxySocket); err != nil {
		return nil, errors.Join(fmt.Errorf("porin-proxy may not run: %w", err), unlock())
	}
	return unlock, nil
}

// namedPods is how many pods a refusal names.
const namedPods = 3

func (c *cleaner) checkPods() error {
	ends, err := link.HostEnds(c.handle)
	if err != nil || c.cfg.Force {
		return err
	}
	pods := endpointmanager.ReadPods(c.cfg.EndpointManager)
	var names []string
	for _, end := range ends {
		a := link.AttachmentOf(end)
		if a == health.Attachment() {
			continue
		}
		name := a.String()
		if pod := pods[a]; pod.Name != "" {
			name = pod.Namespace + "/" + pod.Name
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	some := strings.Join(names[:min(namedPods, len(names))], ", ")
	if len(names) > namedPods {
		some += ", ..."
	}
	return fmt.Errorf("%d pods use Porin (%s): move or delete them while the agent runs, or give --force, which cuts them off", len(names), some)
}

// recordLeftSysctls lists settings that the agent may have changed.
func (c *cleaner) recordLeftSysctls() {
	names := []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"}
	for _, name := range names {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil && strings.TrimSpace(string(value)) == "1" {
			c.recordLeft("sysctl " + strings.ReplaceAll(name, "/", ".") + " = 1: others may need it")
		}
	}
	paths, _ := filepath.Glob("/proc/sys/net/ipv6/conf/*/accept_ra")
	for _, path := range paths {
		if value, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(value)) == "2" {
			c.recordLeft("sysctl " + strings.TrimPrefix(path, "/proc/sys/") + " = 2: with forwarding, the default routes of router advertisements need it")
		}
	}
}

var discard = slog.New(slog.DiscardHandler)
