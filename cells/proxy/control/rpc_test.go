package control

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/fault"
)

// pair returns the ends of a connection.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	a, err = dial(t.Context(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b = conn.(*net.UnixConn)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// rpcConns returns two ends of a connection, served until the test ends.
func rpcConns(t testing.TB, handleA, handleB handler) (a, b *rpcConn) {
	t.Helper()
	connA, connB := pair(t)
	a, b = newRPCConn(connA, handleA), newRPCConn(connB, handleB)
	done := make(chan struct{}, 2)
	for _, p := range []*rpcConn{a, b} {
		go func() {
			_ = p.serve(context.Background())
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		connA.Close()
		connB.Close()
		<-done
		<-done
	})
	return a, b
}

func refuse(context.Context, message) (any, []*os.File, error) {
	return nil, nil, fault.New(fault.Exhausted, "no")
}

// echo answers with the body and the files of the call.
func echo(_ context.Context, m message) (any, []*os.File, error) { return m.Body, m.files, nil }

func TestCall(t *testing.T) {
	a, b := rpcConns(t, refuse, echo)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var answer string
	files, err := a.call(t.Context(), "any", "text", &answer, w)
	if err != nil || answer != "text" || len(files) != 1 {
		t.Fatalf("answer %q with %d files, %v", answer, len(files), err)
	}
	if _, err := files[0].Write([]byte("x")); err != nil {
		t.Errorf("the descriptor that came back: %v", err)
	}
	closeFiles(files)
	if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("nothing came through the descriptor: %v", err)
	}
	if _, err := b.call(t.Context(), "any", nil, nil); fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "no") {
		t.Errorf("error %v, want that of the other end with its kind", err)
	}
	large := strings.Repeat("x", 3<<20)
	if _, err := a.call(t.Context(), "any", large, &answer); err != nil || answer != large {
		t.Errorf("a large message: %d bytes, %v", len(answer), err)
	}
}

// TestCallUnanswered: a call ends with its context, and with the connection; a late answer is dropped.
func TestCallUnanswered(t *testing.T) {
	release, entered := make(chan struct{}), make(chan struct{}, 2)
	a, b := rpcConns(t, refuse, func(context.Context, message) (any, []*os.File, error) {
		entered <- struct{}{}
		<-release
		return nil, nil, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := a.call(ctx, "any", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want that of the context", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := a.call(t.Context(), "any", nil, nil)
		ended <- err
	}()
	<-entered
	<-entered
	if err := b.wire.close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, errConnClosed) {
		t.Errorf("error %v, want %v", err, errConnClosed)
	}
	close(release)
	if _, err := a.call(t.Context(), "any", nil, nil); !errors.Is(err, errConnClosed) {
		t.Errorf("a call after the end: %v, want %v", err, errConnClosed)
	}
}

// TestWriteToEnded: who calls in the moment in which the other end goes hears that it is gone, also when the writer
// notices that before the reader.
func TestWriteToEnded(t *testing.T) {
	a, b := pair(t)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWire(a)
	for _, when := range []string{"closed by the other end", "closed by this one"} {
		if err := w.write(t.Context(), message{Method: "x"}); !errors.Is(err, errConnClosed) {
			t.Errorf("%s: %v, want %v", when, err, errConnClosed)
		}
	}
}

// TestNotifyInOrder: notifications are handled one after the other.
func TestNotifyInOrder(t *testing.T) {
	got := make(chan string, 100)
	a, _ := rpcConns(t, refuse, func(_ context.Context, m message) (any, []*os.File, error) {
		got <- string(m.Body)
		return nil, nil, nil
	})
	for _, text := range []string{"a", "b", "c"} {
		if err := a.notify("any", text); err != nil {
			t.Fatal(err)
		}
	}
	if all := <-got + <-got + <-got; all != `"a""b""c"` {
		t.Errorf("handled as %s", all)
	}
}

// TestWriteToStuckPeer: an end that does not read holds up no caller for ever.
func TestWriteToStuckPeer(t *testing.T) {
	conn, _ := pair(t)
	w := newWire(conn)
	began := time.Now()
	err := w.write(t.Context(), message{Method: "any", Body: []byte(`"` + strings.Repeat("x", 16<<20) + `"`)})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v after %v, want a timeout", err, time.Since(began))
	}
	if err := w.write(t.Context(), message{Method: "any"}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after half of a message: %v, want that the connection is closed", err)
	}
}

// TestReadDamaged: bytes that are no message end the connection.
func TestReadDamaged(t *testing.T) {
	for name, text := range map[string][]byte{
		"too large":  binary.BigEndian.AppendUint32(nil, maxMessage+1),
		"no JSON":    append(binary.BigEndian.AppendUint32(nil, 3), "{{{"...),
		"incomplete": append(binary.BigEndian.AppendUint32(nil, 300), "{"...),
		"nothing":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := a.Write(text); err != nil {
				t.Fatal(err)
			}
			a.Close()
			if m, err := (&wire{conn: b}).read(); err == nil {
				t.Errorf("read %+v", m)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x1e{\"id\":1,\"method\":\"x\",\"body\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		a, b := pair(t)
		if _, err := a.Write(text); err != nil {
			t.Fatal(err)
		}
		a.Close()
		w := newWire(b)
		for {
			m, err := w.read()
			if err != nil {
				break
			}
			closeFiles(m.files)
		}
		if _, err := b.Read(make([]byte, 1)); err == nil {
			_, _ = io.Copy(io.Discard, b)
		}
	})
}
