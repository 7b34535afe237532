package redirect_test

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/testutil"
)

// TestRemoveWhileDatagramIsHandled removes the way into the proxy while the thread handles a datagram, and opens a
// socket to the server for it: it must not wait for Remove, which waits for it. waits for the other one for ever: the
// thread has the listening socket's lock and wants that of the Redirect, Remove has that and wants the socket's.
func TestRemoveWhileDatagramIsHandled(t *testing.T) {
	testutil.Root(t)
	w := newWorld(t)
	var listeners *redirect.Listeners
	must(t, w.node.Do(func() (err error) { listeners, err = w.redirect.Open(); return err }))
	d := newLoop(t, w)
	socket := listeners.UDP[2]
	at := localAddr(t, socket)
	handling, removing, handled := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var once sync.Once
	must(t, d.Serve(socket, func(got redirect.Datagram, _ error) {
		once.Do(func() {
			close(handling)
			<-removing
			time.Sleep(50 * time.Millisecond) // until Remove waits
			s, err := d.Open(redirect.Client{AddrPort: got.Client, IsLocal: true}, netip.MustParseAddrPort("127.0.0.1:53"), func([]byte) {})
			if err == nil {
				err = s.Close()
			}
			handled <- err
		})
	}))
	var client net.Conn
	must(t, w.node.Do(func() (err error) { client, err = net.Dial("udp", at.String()); return err }))
	defer client.Close()
	_, err := client.Write([]byte("query"))
	must(t, err)
	<-handling
	removed := make(chan error, 1)
	go func() {
		close(removing)
		removed <- w.node.Do(w.redirect.Remove)
	}()
	for what, done := range map[string]chan error{"the datagram is handled": handled, "the way is removed": removed} {
		select {
		case err := <-done:
			if what == "the way is removed" {
				must(t, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("not so: %s", what)
		}
	}
}
