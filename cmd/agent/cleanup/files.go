package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/health"
)

// plugin is the name of the CNI plugin.
const plugin = "porin-cni"

// Names of Porin's files in its folders, and what may end them: while a file is written, locked, or set aside as
// damaged. The e2e tests find a name that is missing here.
var (
	stateFiles = []string{"ledger.db", "heartbeat", "proxy-rules.json"} // and sockets, deletions, health.netns
	storeFiles = []string{
		"reservations.db", "policies.db", "names", "node-key", "multipool.json", "multipool-pools.json", "store.db", "peers.db", "kubernetesnode.json", "health.json", "tunnel.json",
	}
	suffixes = []string{".new", ".tmp", ".lock", ".damaged"}

	deletionsFolder = "deletions"
	deletionRecords = []string{"*.delete", "*.bad", "*.tmp", "lock"}

	pinFolders = []string{"maps", "programs", "staging", "tunnel", "proxy"}
)

func (c *cleaner) removeCNIConf() error {
	path := c.cfg.CNIConfPath
	if path == "" {
		return nil
	}
	if err := c.removeFile(path + ".new"); err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var list struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(text, &list); err != nil || len(list.Plugins) == 0 || list.Plugins[0].Type != plugin {
		c.recordLeft("file " + path + ": its first plugin is not " + plugin)
		return nil
	}
	return c.removeFile(path)
}

func (c *cleaner) removePlugins() (err error) {
	for _, dir := range c.cfg.PluginDirs {
		err = errors.Join(err, c.removeFile(filepath.Join(dir, plugin)), c.removeFile(filepath.Join(dir, "."+plugin+".new")))
	}
	return err
}

// removePins removes the folders of pins, each as a whole.
func (c *cleaner) removePins() (err error) {
	for _, name := range pinFolders {
		path := filepath.Join(c.cfg.BPFRoot, name)
		if _, statErr := os.Lstat(path); statErr == nil {
			err = errors.Join(err, c.report("BPF pins", path, os.RemoveAll(path)))
		}
	}
	return errors.Join(err, c.removeOwn(c.cfg.BPFRoot, nil), c.removeFolder(c.cfg.BPFRoot))
}

func (c *cleaner) removeHealthNamespace() error {
	path, err := health.RemoveNamespace(c.cfg.Health)
	if path == "" {
		return err
	}
	return c.report("network namespace", path, err)
}

func (c *cleaner) removeStore() error { return c.removeOwn(c.cfg.StoreDir, storeFiles) }

// removeState removes the lock of the agent's socket last, and does not report it: this process holds it.
func (c *cleaner) removeState() error {
	dir := c.cfg.EndpointManager.StateDir
	deletions := filepath.Join(dir, deletionsFolder)
	err := errors.Join(c.removeOwn(deletions, deletionRecords), c.removeFolder(deletions))
	for _, socket := range []string{c.cfg.ProxySocket, c.cfg.ProxySocket + ".lock"} {
		err = errors.Join(err, c.removeFile(socket))
	}
	err = errors.Join(err, c.removeOwn(dir, stateFiles))
	_ = os.Remove(c.cfg.Server.Socket + ".lock")
	return err
}

// removeOwn removes the files of a folder that Porin has made, and lists the others.
func (c *cleaner) removeOwn(dir string, patterns []string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		switch {
		case path == c.cfg.Server.Socket+".lock":
		case entry.IsDir() || !isOwn(entry.Name(), patterns):
			c.recordLeft(path + ": Porin has not made it")
		default:
			errs = append(errs, c.removeFile(path))
		}
	}
	return errors.Join(errs...)
}

func isOwn(name string, patterns []string) bool {
	names := []string{name}
	for _, suffix := range suffixes {
		names = append(names, strings.TrimSuffix(name, suffix))
	}
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		return slices.ContainsFunc(names, func(name string) bool { ok, _ := filepath.Match(pattern, name); return ok })
	})
}

func (c *cleaner) removeFile(path string) error { return c.report("file", path, os.Remove(path)) }

// removeFolder removes a folder if it is empty. One that a container has as a volume stays.
func (c *cleaner) removeFolder(dir string) error {
	err := os.Remove(dir)
	switch {
	case errors.Is(err, unix.ENOTEMPTY):
		return nil // its files are listed
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EROFS):
		c.recordLeft(fmt.Sprintf("folder %s: it is a volume of this container", dir))
		return nil
	}
	return c.report("folder", dir, err)
}
