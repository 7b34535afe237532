package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// tunnelAddresses has the addresses of the tunnel device while one is needed. They are on the node's disk before their
// first use and no longer there before another owner can get them.
type tunnelAddresses struct {
	source AddressSource // nil: there are none
	path   string        // "" keeps none over a boot
	log    *slog.Logger
	task   *task.Task
	addrs  watchable.Value[[]netip.Addr]

	mu     sync.Mutex // guards the fields below
	needed bool
	blocks []netip.Prefix // of the node
}

// The pauses between tries to get addresses.
const (
	addressesRetry    = time.Second
	addressesMaxRetry = 30 * time.Second
	addressesTimeout  = time.Minute
)

func newTunnelAddresses(source AddressSource, dir string, log *slog.Logger) *tunnelAddresses {
	t := &tunnelAddresses{source: source, log: log}
	if dir != "" {
		t.path = filepath.Join(dir, "tunnel.json")
	}
	t.task = task.Every(log, task.Round{Name: "node-tunnel-addresses", Run: t.reconcile, Retry: addressesRetry, MaxRetry: addressesMaxRetry})
	return t
}

// begin takes the previous addresses again: from the disk, or else from the device.
func (t *tunnelAddresses) begin(ofDevice []netip.Addr) {
	if t.source == nil {
		return
	}
	addrs, err := t.load()
	if err != nil {
		t.log.Warn("tunnel may get other addresses than before", "error", err)
	}
	if len(addrs) == 0 {
		addrs = ofDevice
	}
	if len(addrs) == 0 {
		return
	}
	if err := t.source.Keep(addrs); err != nil {
		t.log.Warn("tunnel gets other addresses than before", "addresses", addrs, "error", err)
		return
	}
	t.addrs.Set(addrs)
}

// need says whether there is a tunnel, and what addresses it may have.
func (t *tunnelAddresses) need(needed bool, blocks []netip.Prefix) {
	t.mu.Lock()
	changed := t.needed != needed || !slices.Equal(t.blocks, blocks)
	t.needed, t.blocks = needed, blocks
	t.mu.Unlock()
	if changed {
		t.task.Trigger()
	}
}

func (t *tunnelAddresses) reconcile(ctx context.Context) error {
	t.mu.Lock()
	needed, blocks := t.needed, t.blocks
	t.mu.Unlock()
	has, _ := t.addrs.Get()
	if t.source == nil || !needed || len(blocks) == 0 {
		return nil
	}
	outside := func(addr netip.Addr) bool {
		return !slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(addr) })
	}
	if slices.ContainsFunc(has, outside) || t.source.LacksFamily() { // the blocks are others now, or there are more
		if err := t.release(); err != nil {
			return err
		}
		has = nil
	}
	if len(has) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, addressesTimeout)
	defer cancel()
	addrs, err := t.source.Allocate(ctx)
	if err != nil {
		return err
	}
	if err := t.save(addrs); err != nil {
		t.source.Release()
		return err
	}
	t.log.Info("tunnel has addresses", "addresses", addrs)
	t.addrs.Set(addrs)
	return nil
}

// release gives the addresses back. The device must not have them any more, or lose them soon: they are quarantined
// before another owner gets them.
func (t *tunnelAddresses) release() error {
	if t.source == nil {
		return nil
	}
	if _, err := os.Stat(t.path); !errors.Is(err, fs.ErrNotExist) { // it does not exist for the path "" either
		if err := os.Remove(t.path); err != nil {
			return fmt.Errorf("forget the addresses of the tunnel: %w", err)
		}
	}
	if has, _ := t.addrs.Get(); len(has) > 0 {
		t.addrs.Set(nil)
		t.source.Release()
	}
	return nil
}

// Err is why there are no addresses.
func (t *tunnelAddresses) Err() error { return t.task.Status().Err }

func (t *tunnelAddresses) load() (addrs []netip.Addr, err error) {
	err = diskfile.ReadJSON(t.path, &addrs)
	if errors.Is(err, fs.ErrNotExist) { // as for the path ""
		return nil, nil
	}
	if err == nil && (len(addrs) > 2 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsGlobalUnicast() })) {
		err = errors.New("no addresses of a tunnel")
	}
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the tunnel in %s: %w", t.path, err)
	}
	return addrs, nil
}

// save returns when they are on the disk.
func (t *tunnelAddresses) save(addrs []netip.Addr) error {
	if t.path == "" {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(t.path), 0o750)
	if err == nil {
		err = diskfile.ReplaceJSON(t.path, addrs)
	}
	if err != nil {
		return fmt.Errorf("keep the addresses of the tunnel: %w", err)
	}
	return nil
}
