package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/store/storetest/etcdtest"
	"porin.dev/porin/internal/testutil"
)

// envMember has this program be a member of an etcd: its configuration as JSON.
const envMember = "PORIN_CHAOS_ETCD"

// walSegment is the size of a file of the write-ahead log, which etcd allocates ahead: a member has two, on a tmpfs.
const walSegment = 1 << 20

// memberConfig is the part of a member's configuration that is its own.
type memberConfig struct {
	Name, Dir       string
	Client, Peer    string // URLs
	Initial, Token  string // of the cluster
	TickMs, Timeout uint   // of an election
}

// memberMain is a member: until it is killed, or its input ends, which it does however its parent ends.
func memberMain(text string) error {
	var own memberConfig
	if err := json.Unmarshal([]byte(text), &own); err != nil {
		return err
	}
	client, err1 := url.Parse(own.Client)
	peer, err2 := url.Parse(own.Peer)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	wal.SegmentSizeBytes = walSegment
	cfg := etcdtest.Config(own.Dir)
	cfg.Name, cfg.Dir = own.Name, own.Dir
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{*client}, []url.URL{*peer}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster, cfg.InitialClusterToken = own.Initial, own.Token
	cfg.TickMs, cfg.ElectionMs = own.TickMs, own.Timeout
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// member is a process on a machine of its own.
type member struct {
	node   *testutil.Node
	handle *netlink.Handle // of its network
	config memberConfig
	cmd    *exec.Cmd // nil when it does not run
	input  io.Closer
	output *bufio.Reader
}

func newMember(t *testing.T, fabric *testutil.Fabric) *member {
	t.Helper()
	node := fabric.NewNode(t)
	m := &member{node: node, handle: node.Netlink(t), config: memberConfig{
		Name: node.Name, TickMs: 50, Timeout: 500,
		Client: fmt.Sprintf("http://%s:2379", node.IPv4), Peer: fmt.Sprintf("http://%s:2380", node.IPv4),
	}}
	t.Cleanup(m.kill)
	return m
}

// start does not wait: a member serves when most of them run.
func (m *member) start() error {
	text, err := json.Marshal(m.config)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env, cmd.Stderr = append(os.Environ(), envMember+"="+string(text)), os.Stderr
	input, err1 := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if err := m.node.Do(cmd.Start); err != nil {
		return fmt.Errorf("start etcd on %s: %w", m.node.Name, err)
	}
	m.cmd, m.input, m.output = cmd, input, bufio.NewReader(output)
	return nil
}

// serves waits until it does.
func (m *member) serves() error {
	if line, err := m.output.ReadString('\n'); err != nil {
		return fmt.Errorf("etcd on %s does not begin to serve: %q, %w", m.node.Name, line, err)
	}
	return nil
}

// kill may be called twice.
func (m *member) kill() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	_ = m.input.Close()
	m.cmd = nil
}

// shun has the member answer none of the nodes, and undo answer them again.
func (m *member) shun(nodes []*testutil.Node) (undo func() error, err error) {
	var routes []*netlink.Route
	for _, n := range nodes {
		route := testutil.HostRoute(0, n.IPv4, 0)
		route.Type, route.Scope = unix.RTN_BLACKHOLE, netlink.SCOPE_UNIVERSE
		routes = append(routes, route)
		err = errors.Join(err, m.handle.RouteAdd(route))
	}
	return func() (err error) {
		for _, route := range routes {
			err = errors.Join(err, m.handle.RouteDel(route))
		}
		return err
	}, err
}
