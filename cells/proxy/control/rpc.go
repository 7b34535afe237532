package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"porin.dev/porin/internal/fault"
)

// errConnClosed is the cause of calls that have no answer because the connection has ended.
var errConnClosed = fault.New(fault.Unavailable, "the connection between agent and proxy has ended")

// wireError is an error of the other process, with its kind.
type wireError struct {
	Kind fault.Kind `json:"kind"`
	Text string     `json:"text"`
}

func (e *wireError) asError() error { return fault.Wrap(e.Kind, errors.New(e.Text)) }

// handler answers a call. It owns the files of the message, and returns the answer's body and files, which are closed
// when they are sent.
type handler func(ctx context.Context, m message) (body any, files []*os.File, err error)

// rpcConn is one end of a connection. Either end may call the other, and several calls may be in flight.
type rpcConn struct {
	wire   wire
	handle handler
	calls  sync.WaitGroup // of handle

	mu      sync.Mutex // guards the fields below
	last    uint64     // ID
	waiting map[uint64]chan message
	ended   bool
}

func newRPCConn(conn *net.UnixConn, handle handler) *rpcConn {
	return &rpcConn{wire: newWire(conn), handle: handle, waiting: map[uint64]chan message{}}
}

// serve reads until the connection ends, and answers calls. Calls of the other end may run at the same time;
// notifications are handled in order, before what comes after them. It returns when all of them are.
func (r *rpcConn) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.calls.Wait()
	defer cancel()
	defer r.end()
	stop := context.AfterFunc(ctx, func() { _ = r.wire.close() })
	defer stop()
	for {
		m, err := r.wire.read()
		if err != nil {
			return err
		}
		switch {
		case m.Method == "":
			r.deliver(m)
		case m.ID == 0:
			_, files, _ := r.handle(ctx, m)
			closeFiles(files)
		default:
			r.calls.Go(func() { r.serveCall(ctx, m) })
		}
	}
}

// end has all that wait for an answer hear that there will be none.
func (r *rpcConn) end() {
	_ = r.wire.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for _, c := range r.waiting {
		close(c)
	}
	r.waiting = nil
}

func (r *rpcConn) serveCall(ctx context.Context, m message) {
	answer := message{ID: m.ID}
	body, files, err := r.handle(ctx, m)
	if err == nil && body != nil {
		answer.Body, err = json.Marshal(body)
	}
	if err != nil {
		answer.Error = &wireError{fault.KindOf(err), err.Error()}
	} else {
		answer.files = files
	}
	if err := r.wire.write(context.Background(), answer); err != nil {
		_ = r.wire.close() // the other end must not wait for it
	}
	closeFiles(files)
}

func (r *rpcConn) deliver(m message) {
	r.mu.Lock()
	c := r.waiting[m.ID]
	delete(r.waiting, m.ID)
	r.mu.Unlock()
	if c == nil { // the caller does not wait any more
		closeFiles(m.files)
		return
	}
	c <- m
}

// notify sends a message without an answer. It blocks while another message is written, and for at most [writeTimeout]
// if the other end does not read. The caller keeps the files.
func (r *rpcConn) notify(method string, body any, files ...*os.File) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return r.wire.write(context.Background(), message{Method: method, Body: text, files: files})
}

// call asks the other end, and waits for the answer until ctx ends. The caller closes the files of the answer.
func (r *rpcConn) call(ctx context.Context, method string, body, result any, files ...*os.File) ([]*os.File, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", method, errConnClosed)
	}
	r.last++
	id := r.last
	r.waiting[id] = answer
	r.mu.Unlock()
	if err := r.wire.write(ctx, message{ID: id, Method: method, Body: text, files: files}); err != nil {
		r.cancel(id, answer)
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: %w", method, errConnClosed)
		}
		var err error
		switch {
		case m.Error != nil:
			err = m.Error.asError()
		case result != nil && len(m.Body) > 0:
			err = json.Unmarshal(m.Body, result)
		}
		if err != nil {
			closeFiles(m.files)
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		return m.files, nil
	case <-ctx.Done():
		r.cancel(id, answer)
		return nil, fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// cancel ends the wait for an answer, which may have come meanwhile.
func (r *rpcConn) cancel(id uint64, answer chan message) {
	r.mu.Lock()
	delete(r.waiting, id)
	r.mu.Unlock()
	select {
	case m := <-answer:
		closeFiles(m.files)
	default:
	}
}
