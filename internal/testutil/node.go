package testutil

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// Node is a machine of a cluster: a network namespace with an uplink to its [Fabric], and folders of its own for
// everything that an agent keeps. Any number of them run side by side.
type Node struct {
	*Namespace
	Fabric *Fabric
	Number int    // 1 for the first node of the fabric
	Name   string // "node1"
	Dir    string // on a tmpfs, and short enough for a socket's path

	IPv4, IPv6        netip.Addr   // its own addresses
	PodIPv4, PodIPv6  netip.Prefix // what its pods are numbered from, unless StartAgent is told otherwise
	Socket            string
	PluginDir         string // where its agents look for IPAM plugins; see [Node.InstallPlugin]
	StateDir, BPFRoot string

	uplink int              // index of the fabric's end of its link
	mac    net.HardwareAddr // of the node's end
}

// NewNode makes a node in a fabric of its own.
func NewNode(t testing.TB) *Node { t.Helper(); return NewFabric(t).NewNode(t) }

// NewNode adds a node.
func (f *Fabric) NewNode(t testing.TB) *Node {
	t.Helper()
	f.mu.Lock()
	f.nodes++
	number := byte(f.nodes)
	f.mu.Unlock()

	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &Node{
		Namespace: NetNS(t), Fabric: f, Number: int(number), Name: fmt.Sprintf("node%d", number), Dir: dir,
		IPv4:      netip.AddrFrom4([4]byte{192, 0, 2, number}),
		IPv6:      netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: number}),
		PodIPv4:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100, number, 0}), 24),
		PodIPv6:   netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x10, 5: number}), 64),
		Socket:    filepath.Join(dir, "agent.sock"),
		StateDir:  filepath.Join(dir, "state"),
		BPFRoot:   filepath.Join(BPFFS(t), "porin"),
		PluginDir: filepath.Join(dir, "cni-bin"),
	}
	if err := os.Mkdir(n.PluginDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.join(t, n); err != nil {
		t.Fatalf("connect %s to its fabric: %v", n.Name, err)
	}
	return n
}

// InstallPlugin makes a program known to the node's agents and runtimes under its own name.
func (n *Node) InstallPlugin(t testing.TB, program string) {
	t.Helper()
	if err := os.Symlink(program, filepath.Join(n.PluginDir, filepath.Base(program))); err != nil {
		t.Fatal(err)
	}
}

// Container is a container as a runtime knows it: an ID and a network namespace. Its fields may be changed before a
// call of [CNI].
type Container struct {
	*Namespace
	ID     string
	IfName string
	Args   [][2]string    // CNI_ARGS
	Caps   map[string]any // runtimeConfig
}

// NewContainer makes a container with a random ID and nothing but lo. It is not attached to any node.
func NewContainer(t testing.TB) *Container {
	t.Helper()
	return &Container{Namespace: NetNS(t), ID: NewContainerID(), IfName: "eth0"}
}

// NewContainerID returns an unused one, in the form that runtimes use.
func NewContainerID() string {
	var id [32]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
