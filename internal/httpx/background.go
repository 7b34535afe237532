package httpx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Background is an http.Server that serves in a goroutine of its own.
type Background struct {
	server *http.Server
	done   chan struct{} // closed when the goroutine has ended
}

// Serve serves listener until Stop. When serving ends for another reason, failed is called once, from the goroutine.
func Serve(server *http.Server, listener net.Listener, failed func(error)) *Background {
	b := &Background{server: server, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serve on %s: %w", listener.Addr(), err))
		}
	}()
	return b
}

// Stop accepts nothing new and waits for the running requests. Those that still run when ctx ends have their
// connection cut and their context cancelled, and Stop returns an error; it does not wait for their handlers. The
// listener is closed and the goroutine has ended when Stop returns.
func (b *Background) Stop(ctx context.Context) error {
	err := b.server.Shutdown(ctx)
	if err != nil {
		_ = b.server.Close()
		err = fmt.Errorf("wait for running requests: %w", err)
	}
	<-b.done
	return err
}
