package redirect

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nft"
	"porin.dev/porin/internal/reconcile"
)

// ErrUnsupported is returned when the kernel lacks what redirects need.
var ErrUnsupported = fault.New(fault.Unavailable,
	"kernel lacks what the proxy needs: Linux 6.1, veth, SK_LOOKUP programs, and nf_tables with inet tables and socket expressions (CONFIG_NFT_SOCKET)")

// Link is the programs that redirect packets. They are told the device that leads to the proxy; 0 is none. A packet
// that opens a connection has to go to the device, and so has a packet of a connection that begins or is over; other
// packets are known by their socket.
type Link interface {
	SetProxyLink(index int) error
	ProxyLink() (index int, err error)
	// UseMaps calls f with the maps that select_listener shares with them ([bpf.ListenerMaps]). For missing maps it has
	// its own, empty ones.
	UseMaps(f func(map[string]*ebpf.Map) error) error
}

// Config says where the way into the proxy is kept.
type Config struct {
	BPFRoot string // a folder of a BPF file system; the pin is in a folder below it
}

// Redirect is the way into the proxy of one network namespace.
type Redirect struct {
	cfg      Config
	link     Link
	log      *slog.Logger
	follower *reconcile.Follower[string]

	mu         sync.Mutex                // guards the fields below; held while the kernel is changed
	namespace  atomic.Pointer[namespace] // nil unless open; read without the lock
	damage     atomic.Pointer[string]    // why the last repair failed; read without the lock
	closed     chan struct{}             // closed by Close and Remove; nil unless open
	handle     *netlink.Handle
	divert     *nft.Owner
	listeners  *Listeners
	lock       *os.File // nil unless open
	given      Handover // what the next Open uses
	handedOver bool     // another process is taking over: nothing is repaired
}

// New returns a closed Redirect. It touches nothing.
func New(cfg Config, link Link, log *slog.Logger) *Redirect {
	r := &Redirect{cfg: cfg, link: link, log: log}
	r.follower = reconcile.NewFollower[string](source{r}, log)
	return r
}

// Open makes what packets need to get to the proxy, and the listening sockets. From then on packets that wait for the
// proxy get there. An open one is repaired.
func (r *Redirect) Open() (*Listeners, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.openLocked(); err != nil {
		return nil, fmt.Errorf("open the way into the proxy: %w", errors.Join(err, r.close()))
	}
	return r.listeners, nil
}

// The device comes first, and the programs learn of it last.
func (r *Redirect) openLocked() error {
	if err := r.openHandles(); err != nil {
		return err
	}
	if err := r.acquireLock(); err != nil {
		return err
	}
	index, err := r.device()
	if err != nil {
		return err
	}
	if err := errors.Join(r.route(), r.divert.Apply(nft.State{})); err != nil {
		return err
	}
	if r.listeners == nil {
		if err := r.listen(); err != nil {
			return err
		}
	}
	if err := r.listeners.attach(r.cfg.pin(), index, r.link); err != nil {
		return err
	}
	return r.link.SetProxyLink(index)
}

// listen opens the sockets, or takes those over that another process gave. What that has left of them is closed.
func (r *Redirect) listen() (err error) {
	if given := r.given.Sockets; len(given) > 0 {
		r.given.Sockets = nil
		r.listeners, err = adopt(r.namespace.Load(), given)
		err = errors.Join(err, given.Close())
		if err == nil {
			return nil
		}
		r.log.Warn("connections that wait for the proxy are lost", "error", err)
	}
	r.listeners, err = listen(r.namespace.Load())
	return err
}

// acquireLock makes sure that no other process is the proxy.
func (r *Redirect) acquireLock() (err error) {
	if r.lock != nil {
		return nil
	}
	if r.lock, r.given.Lock = r.given.Lock, nil; r.lock == nil {
		r.lock, err = r.cfg.lockFolder()
	}
	return err
}

// openHandles opens the namespace of the calling thread and the sockets to change it.
func (r *Redirect) openHandles() (err error) {
	if r.namespace.Load() != nil {
		return nil
	}
	namespace, err := openNamespace()
	if err != nil {
		return err
	}
	r.namespace.Store(namespace)
	if r.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open a route-netlink socket: %w", err)
	}
	r.divert, r.closed = nft.New(namespace.file, divertTable(), r.log), make(chan struct{})
	return nil
}

// Close closes the sockets. Kernel state stays.
func (r *Redirect) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.close()
}

func (r *Redirect) close() error {
	namespace := r.namespace.Swap(nil)
	if namespace == nil {
		err := r.given.Close()
		r.given = Handover{}
		return err
	}
	errs := []error{r.listeners.close()}
	if r.divert != nil {
		errs = append(errs, r.divert.Close())
		close(r.closed)
	}
	if r.handle != nil {
		r.handle.Close()
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	errs = append(errs, namespace.file.Close(), r.given.Close())
	r.damage.Store(nil)
	r.handle, r.divert, r.listeners, r.closed, r.lock, r.given, r.handedOver = nil, nil, nil, nil, nil, Handover{}, false
	return errors.Join(errs...)
}

// Remove closes the sockets and takes everything out of the kernel, of a previous agent's too: packets that wait for
// the proxy are dropped.
func (r *Redirect) Remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handedOver {
		return errHandedOver
	}
	err := r.openHandles()
	if err == nil {
		err = r.acquireLock()
	}
	if err != nil {
		return errors.Join(err, r.close())
	}
	err = errors.Join(r.link.SetProxyLink(0), unpin(r.cfg.pin()), r.divert.Apply(nil), r.unroute(), r.removeDevice(), r.close())
	if err != nil {
		return fmt.Errorf("remove the way into the proxy: %w", err)
	}
	return nil
}

// namespace is a network namespace.
type namespace struct {
	file *os.File
	own  bool // it is the process' own
}

func openNamespace() (*namespace, error) {
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	n := &namespace{file: file}
	info, err := file.Stat()
	if err == nil {
		var process os.FileInfo
		if process, err = os.Stat("/proc/self/ns/net"); err == nil {
			n.own = os.SameFile(info, process)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at the network namespace: %w", err), file.Close())
	}
	return n, nil
}

// do runs f in the namespace. Threads of the process are in its own one anyway, unless another package changes that for
// a while, in a goroutine of its own.
func (n *namespace) do(f func() error) error {
	if n.own {
		return f()
	}
	return netns.In(int(n.file.Fd()), f)
}

// inode tells namespaces apart.
func (n *namespace) inode() (uint64, error) {
	info, err := n.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Ino, nil
}
