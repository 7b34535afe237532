package demo

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

const (
	streamBytes = 64 << 20
	streamChunk = 256 << 10
)

// killed kills the agent while a stream runs between the containers, and starts it again before the stream ends.
func (s *story) killed() {
	before := s.status()
	listing, err := s.run("endpoint", "list", "-o", "json")
	s.must(err, "porin endpoint list")

	stream := s.startStream(s.containers[0], s.containers[1])
	stream.until(streamBytes / 4)
	s.agent.Kill(s)
	s.say("killed with SIGKILL after %d MiB of %d", stream.sent()>>20, streamBytes>>20)
	stream.until(streamBytes / 2)
	s.say("%d MiB have passed while no agent runs", stream.sent()>>20)
	s.agent.Restart(s)
	s.say("a new agent, process %d, is ready after %s", s.agent.PID(), short(s.agent.Started))
	stream.until(streamBytes)
	s.must(stream.finish(), "the stream")
	s.say("all %d MiB arrived, with the same SHA-256: no byte was lost", streamBytes>>20)

	after := s.status()
	if !after.Datapath.Adopted || fmt.Sprint(after.Datapath.Programs) != fmt.Sprint(before.Datapath.Programs) {
		s.Fatalf("the programs were %v and are %v, adopted: %v", before.Datapath.Programs, after.Datapath.Programs, after.Datapath.Adopted)
	}
	for _, p := range after.Datapath.Programs {
		s.say("program %s is still the one with ID %d", p.Name, p.ID)
	}
	again, err := s.run("endpoint", "list", "-o", "json")
	s.must(err, "porin endpoint list")
	if want, got := identities(s, listing), identities(s, again); want != got {
		s.Fatalf("the endpoints were\n%s\nand are\n%s", want, got)
	}
	s.say("the endpoints are the same: %d taken over, %d undone", after.Restored.Adopted, after.Restored.Undone)
}

// stream is one TCP connection that the test holds back, so that the agent dies and comes back in the middle of it.
type stream struct {
	s       *story
	allowed chan int // bytes that may have been sent from now on
	reached chan int
	total   int
	result  chan error
}

func (s *story) startStream(from, to *container) *stream {
	listener := to.Listen(s, netip.AddrPortFrom(to.ipv4, 0))
	conn, err := from.Dial(listener.Addr().(*net.TCPAddr).AddrPort(), reach)
	s.must(err, "connect")
	st := &stream{s: s, allowed: make(chan int), reached: make(chan int), result: make(chan error, 2)}
	sums := make(chan [sha256.Size]byte, 2)
	go func() { st.result <- st.send(conn, sums) }()
	go func() { st.result <- receive(listener, sums) }()
	st.result = collect(st.result, sums)
	return st
}

// collect waits for both ends and compares what they saw.
func collect(ends <-chan error, sums <-chan [sha256.Size]byte) chan error {
	result := make(chan error, 1)
	go func() {
		for range 2 {
			if err := <-ends; err != nil {
				result <- err
				return
			}
		}
		sent, received := <-sums, <-sums // in either order
		if sent != received {
			result <- fmt.Errorf("what arrived is not what was sent")
			return
		}
		result <- nil
	}()
	return result
}

func (st *stream) send(conn net.Conn, sums chan<- [sha256.Size]byte) error {
	defer conn.Close()
	sum, chunk, sent := sha256.New(), make([]byte, streamChunk), 0
	for limit := range st.allowed {
		for sent < limit {
			_, _ = rand.Read(chunk)
			if _, err := conn.Write(chunk); err != nil {
				close(st.reached)
				return err
			}
			_, _ = sum.Write(chunk)
			sent += len(chunk)
		}
		st.reached <- sent
	}
	sums <- [sha256.Size]byte(sum.Sum(nil))
	return nil
}

func receive(listener net.Listener, sums chan<- [sha256.Size]byte) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, conn); err != nil {
		return err
	}
	sums <- [sha256.Size]byte(sum.Sum(nil))
	return nil
}

// until lets the stream run to so many bytes and waits for that.
func (st *stream) until(bytes int) {
	st.allowed <- bytes
	select {
	case total, ok := <-st.reached:
		if !ok {
			st.s.must(<-st.result, "the stream")
		}
		st.total = total
	case <-time.After(4 * reach):
		st.s.Fatalf("the stream stands still at %d of %d bytes", st.total, bytes)
	}
}

func (st *stream) sent() int { return st.total }

func (st *stream) finish() error {
	close(st.allowed)
	return <-st.result
}

// identities is a listing without what may change, the counters.
func identities(s *story, listing string) string {
	var out bytes.Buffer
	for _, ep := range decode(s, listing) {
		fmt.Fprintln(&out, ep.ID, ep.ContainerID, ep.State, ep.Addresses.IPv4, ep.Addresses.IPv6, ep.Host.Name, ep.Host.Index)
	}
	return out.String()
}
