package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// answerTime bounds how long a connection takes to open, and a server to answer.
const answerTime = 15 * time.Second

// responder serves an address by TCP and UDP. To each line, or datagram, it answers with its name, the peer that it
// sees, and the line.
type responder struct {
	name     string
	tcp      net.Listener
	udp      net.PacketConn
	running  sync.WaitGroup
	mu       sync.Mutex              // guards the fields below
	conns    []net.Conn              // of TCP
	speakers map[string]func(string) // by protocol and peer
}

// respond starts one. It ends with the test.
func respond(t testing.TB, ns *testutil.Namespace, name string, at netip.AddrPort) *responder {
	t.Helper()
	r := &responder{name: name, tcp: ns.Listen(t, at), speakers: map[string]func(string){}}
	err := ns.Do(func() (err error) {
		r.udp, err = net.ListenPacket("udp", at.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	r.running.Go(r.serveTCP)
	r.running.Go(r.serveUDP)
	t.Cleanup(r.close)
	return r
}

func (r *responder) close() {
	r.tcp.Close()
	r.udp.Close()
	r.mu.Lock()
	for _, conn := range r.conns {
		conn.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *responder) serveTCP() {
	for {
		conn, err := r.tcp.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.conns = append(r.conns, conn)
		r.mu.Unlock()
		r.running.Go(func() {
			defer conn.Close()
			answer := r.speaker("tcp", conn.RemoteAddr(), func(b []byte) { _, _ = conn.Write(b) })
			for lines := bufio.NewScanner(conn); lines.Scan(); {
				answer(lines.Text())
			}
		})
	}
}

func (r *responder) serveUDP() {
	buf := make([]byte, 1<<16)
	for {
		n, peer, err := r.udp.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.speaker("udp", peer, func(b []byte) { _, _ = r.udp.WriteTo(b, peer) })(strings.TrimSpace(string(buf[:n])))
		}
	}
}

func (r *responder) speaker(protocol string, peer net.Addr, send func([]byte)) func(string) {
	say := func(text string) { send(fmt.Appendf(nil, "%s %s %s\n", r.name, peer, text)) }
	r.mu.Lock()
	defer r.mu.Unlock()
	r.speakers[protocol+" "+peer.String()] = say
	return say
}

const unasked = "unasked"

// speakUp sends something to a peer that has not asked.
func (r *responder) speakUp(protocol string, peer netip.AddrPort) {
	r.mu.Lock()
	say := r.speakers[protocol+" "+peer.String()]
	r.mu.Unlock()
	say(unasked)
}

// dialog is the client's end of a connection to a responder.
type dialog struct {
	net.Conn
	protocol string
	in       *bufio.Reader
	asked    int
}

// answer is what a responder said.
type answer struct {
	server string
	peer   netip.AddrPort // the client, as the server sees it
	text   string
}

// openDialog connects, from any local port with 0. Another, which others may have, too, is for TCP alone.
func openDialog(from *testutil.Namespace, protocol string, port uint16, to netip.AddrPort, timeout time.Duration) (c *dialog, err error) {
	dialer := net.Dialer{Timeout: timeout}
	if port != 0 {
		dialer.Control = sharePort
		dialer.LocalAddr = &net.TCPAddr{Port: int(port)}
	}
	err = from.Do(func() error {
		conn, err := dialer.Dial(protocol, to.String())
		c = &dialog{Conn: conn, protocol: protocol, in: bufio.NewReaderSize(conn, 1<<16)}
		return err
	})
	return c, err
}

// sharePort lets one port have connections to several servers.
func sharePort(_, _ string, socket syscall.RawConn) (err error) {
	controlErr := socket.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(controlErr, err)
}

func (c *dialog) local() netip.AddrPort { return netip.MustParseAddrPort(c.LocalAddr().String()) }

func (c *dialog) to() netip.AddrPort { return netip.MustParseAddrPort(c.RemoteAddr().String()) }

// reset resets the connection at once, whoever else has its descriptor, as processes that are started beside do for a
// moment: to close it with SO_LINGER would wait for them. TCP answers connect(2) with AF_UNSPEC with a reset.
func (c *dialog) reset(t testing.TB) {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	unspecified := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
	})
	if err != nil || errno != 0 {
		t.Fatalf("resetting a connection: %v, %v", err, errno)
	}
	c.Close()
}

// ask sends a line and returns the answer to it.
func (c *dialog) ask() (answer, error) {
	c.asked++
	return c.askText(strconv.Itoa(c.asked))
}

func (c *dialog) askText(text string) (answer, error) { return c.askWithin(text, answerTime) }

func (c *dialog) askWithin(text string, timeout time.Duration) (answer, error) {
	_ = c.SetDeadline(time.Now().Add(timeout))
	if _, err := c.Write([]byte(text + "\n")); err != nil {
		return answer{}, err
	}
	return c.read(text)
}

// hear returns the next answer, which must have the text.
func (c *dialog) hear(text string) (a answer, err error) {
	_ = c.SetDeadline(time.Now().Add(answerTime))
	return c.read(text)
}

func (c *dialog) read(text string) (a answer, err error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return a, err
	}
	return parseAnswer(line, text)
}

func parseAnswer(line, text string) (a answer, err error) {
	words := strings.Fields(line)
	if len(words) != 3 || words[2] != text {
		return a, fmt.Errorf("the answer to %.20q is %.80q", text, line)
	}
	a.server, a.text = words[0], words[2]
	a.peer, err = netip.ParseAddrPort(words[1])
	return a, err
}
