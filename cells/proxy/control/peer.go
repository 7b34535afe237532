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

// errPeerGone is the cause of calls that have no answer because the connection has ended.
var errPeerGone = fault.New(fault.Unavailable, "the connection between agent and proxy has ended")

// wireError is an error of the other process, with its kind.
type wireError struct {
	Kind fault.Kind `json:"kind"`
	Text string     `json:"text"`
}

func (e *wireError) asError() error { return fault.Wrap(e.Kind, errors.New(e.Text)) }

// handler answers a call. It owns the files of the message, and returns the answer's body and files, which are closed when they are sent.
type handler func(ctx context.Context, m message) (body any, files []*os.File, err error)

// peer is one end of a connection. Either end may call the other, and several calls may be under way.
type peer struct {
	wire   wire
	handle handler
	calls  sync.WaitGroup // of handle

	mu      sync.Mutex // guards the fields below
	last    uint64     // ID
	waiting map[uint64]chan message
	ended   bool
}

func newPeer(conn *net.UnixConn, handle handler) *peer {
	return &peer{wire: newWire(conn), handle: handle, waiting: map[uint64]chan message{}}
}

// serve reads until the connection ends, and answers calls. Calls of the other end may run at the same time; notifications are handled in order, before what
// comes after them. It returns when all of them are.
func (p *peer) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer p.calls.Wait()
	defer cancel()
	defer p.end()
	stop := context.AfterFunc(ctx, func() { _ = p.wire.close() })
	defer stop()
	for {
		m, err := p.wire.read()
		if err != nil {
			return err
		}
		switch {
		case m.Method == "":
			p.answered(m)
		case m.ID == 0:
			_, files, _ := p.handle(ctx, m)
			closeFiles(files)
		default:
			p.calls.Go(func() { p.answer(ctx, m) })
		}
	}
}

// end has all that wait for an answer hear that there will be none.
func (p *peer) end() {
	_ = p.wire.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, c := range p.waiting {
		close(c)
	}
	p.waiting = nil
}

func (p *peer) answer(ctx context.Context, m message) {
	reply := message{ID: m.ID}
	body, files, err := p.handle(ctx, m)
	if err == nil && body != nil {
		reply.Body, err = json.Marshal(body)
	}
	if err != nil {
		reply.Error = &wireError{fault.KindOf(err), err.Error()}
	} else {
		reply.files = files
	}
	if err := p.wire.write(context.Background(), reply); err != nil {
		_ = p.wire.close() // the other end must not wait for it
	}
	closeFiles(files)
}

func (p *peer) answered(m message) {
	p.mu.Lock()
	c := p.waiting[m.ID]
	delete(p.waiting, m.ID)
	p.mu.Unlock()
	if c == nil { // who has called does not wait any more
		closeFiles(m.files)
		return
	}
	c <- m
}

// notify sends a message that nobody answers. It blocks while another message is written, and for at most [writeTimeout] if the other end does not read. The caller keeps
// the files.
func (p *peer) notify(method string, body any, files ...*os.File) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return p.wire.write(context.Background(), message{Method: method, Body: text, files: files})
}

// call asks the other end, and waits for the answer until ctx ends. The caller closes the files of the answer.
func (p *peer) call(ctx context.Context, method string, body, result any, files ...*os.File) ([]*os.File, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	answer := make(chan message, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", method, errPeerGone)
	}
	p.last++
	id := p.last
	p.waiting[id] = answer
	p.mu.Unlock()
	if err := p.wire.write(ctx, message{ID: id, Method: method, Body: text, files: files}); err != nil {
		p.forget(id, answer)
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: %w", method, errPeerGone)
		}
		return read(m, method, result)
	case <-ctx.Done():
		p.forget(id, answer)
		return nil, fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}

// forget gives up a call. Its answer may have come meanwhile.
func (p *peer) forget(id uint64, answer chan message) {
	p.mu.Lock()
	delete(p.waiting, id)
	p.mu.Unlock()
	select {
	case m := <-answer:
		closeFiles(m.files)
	default:
	}
}

// read returns what an answer says.
func read(m message, method string, result any) ([]*os.File, error) {
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
}
