package bufconn

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// pair returns the ends of a TCP connection.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return New(c, new(atomic.Uint32), Unlimited{}), peer
}

func TestFillHoldsBufferOnlyForData(t *testing.T) {
	c, peer := pair(t)
	if _, err := io.WriteString(peer, "0123"); err != nil {
		t.Fatal(err)
	}
	for len(c.Data()) < 4 {
		if err := c.Fill(0); err != nil {
			t.Fatal(err)
		}
	}
	c.Discard(1)
	if got := string(c.Data()); got != "123" || c.buf == nil {
		t.Errorf("data is %q", got)
	}
	c.Discard(3)
	if c.buf != nil {
		t.Error("a buffer is held, though everything was used")
	}
	peer.Close()
	if err := c.Fill(0); !errors.Is(err, io.EOF) || c.buf != nil {
		t.Errorf("at the end: %v, buffer %v", err, c.buf)
	}
}

func TestFillGrowsToLimit(t *testing.T) {
	c, peer := pair(t)
	const limit = 2 * BufferSize
	go peer.Write(make([]byte, limit+1))
	var err error
	for err == nil {
		err = c.Fill(limit)
	}
	if !errors.Is(err, ErrFull) || len(c.Data()) != limit {
		t.Errorf("%d bytes and %v, want %d and ErrFull", len(c.Data()), err, limit)
	}
}
