package cni

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// chains are the lists of plugins that the container runtime reads. A plugin is not told which others come after it.
type chains struct {
	dir string // of the lists; the empty string knows none

	mu   sync.Mutex // guards the field below
	read map[string]chain
}

// chain is what was read of a list, unless the file is another one by now.
type chain struct {
	file    fs.FileInfo
	network string
	setsMAC bool
}

func newChains(dir string) *chains { return &chains{dir: dir, read: map[string]chain{}} }

// check refuses a network in whose list a plugin changes the MAC of the interface. The container's kernel forgets its
// neighbours with that (NETDEV_CHANGEADDR), and Porin's interface has no host on the link that would answer for the
// gateway. A list that cannot be read is the runtime's fault to report.
func (c *chains) check(network string) error {
	if c.dir == "" {
		return nil
	}
	files, err := libcni.ConfFiles(c.dir, []string{".conflist"})
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range files {
		file, err := os.Stat(path)
		if err != nil {
			continue
		}
		known, ok := c.read[path]
		if !ok || !os.SameFile(known.file, file) || known.file.ModTime() != file.ModTime() || known.file.Size() != file.Size() {
			known = readChain(path, file)
			c.read[path] = known
		}
		if known.network == network && known.setsMAC {
			return fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s: the plugin tuning sets the MAC of an interface of porin-cni, which cuts the container off", path),
				`remove "mac" from its configuration and from its capabilities`)
		}
	}
	return nil
}

func readChain(path string, file fs.FileInfo) chain {
	read := chain{file: file}
	list, err := libcni.ConfListFromFile(path)
	if err != nil {
		return read
	}
	read.network = list.Name
	ours := false
	for _, plugin := range list.Plugins {
		var tuning struct {
			MAC string `json:"mac"`
		}
		ours = ours || plugin.Network.Type == "porin-cni"
		if !ours || plugin.Network.Type != "tuning" || json.Unmarshal(plugin.Bytes, &tuning) != nil {
			continue
		}
		read.setsMAC = read.setsMAC || tuning.MAC != "" || plugin.Network.Capabilities["mac"]
	}
	return read
}
