package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/version"
)

// ErrNotConnected is why layer 7 rules cannot be given to a proxy in a process of its own.
var ErrNotConnected = fault.New(fault.Unavailable, "porin-proxy is not connected: does it run, with the same --proxy-socket?")

const (
	firstDial = 20 * time.Millisecond // the pause after a dial that failed
	lastDial  = time.Second
	// callTimeout bounds a call of the agent whose caller has no timeout of its own: the first one, with which the proxy
	// gets all rules, later rules, and names.
	callTimeout = 10 * time.Second
)

// Client is the agent's end of the connection to a proxy in a process of its own: a [policy.Proxy]. While the proxy is
// away, connections that need it wait.
type Client struct {
	cfg     ClientConfig
	names   Names
	log     *slog.Logger
	task    *task.Task
	needed  chan struct{} // closed when a proxy may be needed: nothing is connected before
	need    func()
	rules   ruleSync
	conns   proxyConns
	sockets heldSockets

	requests accesslog.Log // that the proxy tells of
}

var (
	_ policy.Proxy         = (*Client)(nil)
	_ proxy.EndpointCloser = (*Client)(nil)
)

// Names learns what names have: see [policy.Names].
type Names interface {
	policy.Learner
	Scope() policy.NameScope
	OnScopeChange(changed func())
}

// NewClient returns a client that does not connect before its task runs. names answers the proxy's queries.
func NewClient(cfg ClientConfig, names Names, log *slog.Logger) *Client {
	c := &Client{
		cfg: cfg, names: names, log: log, needed: make(chan struct{}), rules: newRuleSync(names.Scope), conns: newProxyConns(),
	}
	c.need = sync.OnceFunc(func() { close(c.needed) })
	c.task = task.Forever(log, "proxy-control", c.run)
	names.OnScopeChange(func() { c.Release(nil) })
	return c
}

// Requests are what clients have asked for through the proxy.
func (c *Client) Requests() *accesslog.Log { return &c.requests }

// Task is the loop that connects to the proxy.
func (c *Client) Task() *task.Task { return c.task }

// Close closes the sockets that the agent holds, after the task has ended. Where the proxy is away, connections that
// wait are reset.
func (c *Client) Close() error { return c.sockets.replace(nil) }

// Healthy implements [policy.Proxy].
func (c *Client) Healthy() error { return c.Status().Err }

// Changed implements [policy.Proxy].
func (c *Client) Changed() {
	for _, p := range c.conns.list() {
		go func() { _ = p.rpc.notify(methodChanged, struct{}{}) }() // the reader notices a closed connection
	}
}

// CloseEndpoint implements [proxy.EndpointCloser]. A proxy that ends takes its connections with it.
func (c *Client) CloseEndpoint(ctx context.Context, id uint16) error {
	all := c.conns.list()
	errs := make([]error, len(all))
	var waiting sync.WaitGroup
	for i, p := range all {
		waiting.Go(func() {
			if _, err := p.rpc.call(ctx, methodCloseEndpoint, closeEndpoint{id}, nil); !errors.Is(err, errConnClosed) {
				errs[i] = err
			}
		})
	}
	waiting.Wait()
	return errors.Join(errs...)
}

// Status returns how the proxy is.
func (c *Client) Status() Status {
	status, lastErr := c.conns.status()
	if !status.Connected && !c.rules.isEmpty() {
		status.Err = errors.Join(ErrNotConnected, lastErr)
	}
	return status
}

// run connects again and again.
func (c *Client) run(ctx context.Context) error {
	var serving sync.WaitGroup
	defer serving.Wait()
	select {
	case <-c.needed:
	case <-ctx.Done():
	}
	pause := firstDial
	for ctx.Err() == nil {
		p, ended, err := c.connect(ctx, &serving)
		c.conns.recordDial(err)
		if err == nil {
			began := time.Now()
			select {
			case <-ended:
			case <-ctx.Done():
			}
			c.conns.clearCurrent(p)
			if time.Since(began) > lastDial { // else the two may not understand each other
				pause = firstDial
				continue
			}
		}
		_ = task.Sleep(ctx, pause)
		pause = min(2*pause, lastDial)
	}
	return ctx.Err()
}

// connect says hello to the proxy, with all rules and the sockets that the agent holds. ended is closed when the proxy
// is gone or replaced.
func (c *Client) connect(ctx context.Context, serving *sync.WaitGroup) (_ *proxyConn, ended <-chan struct{}, err error) {
	helloCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := dial(helloCtx, c.cfg.Socket)
	if err != nil {
		return nil, nil, err
	}
	p := &proxyConn{sending: make(chan struct{}, 1)}
	gone := make(chan struct{})
	end := sync.OnceFunc(func() { close(gone) })
	p.rpc = newRPCConn(conn, func(ctx context.Context, m message) (any, []*os.File, error) {
		return nil, nil, c.handle(ctx, p, m, end)
	})
	c.conns.add(p)
	serving.Go(func() {
		err := p.rpc.serve(ctx)
		c.log.Debug("a connection to the proxy has ended", "error", err)
		c.conns.remove(p)
		end()
	})
	p.sending <- struct{}{} // it gets rules with the hello
	sent := sync.OnceFunc(func() { <-p.sending })
	defer sent()
	h := hello{Oldest: oldestProtocol, Newest: newestProtocol, Version: version.Of(), Rules: c.rules.snapshot()}
	var files []*os.File
	if h.Sockets, files, err = c.sockets.copies(); err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	var answer helloAnswer
	_, err = p.rpc.call(helloCtx, methodHello, h, &answer, files...)
	closeFiles(files)
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	p.version, p.rejected = h.Rules.Version, answer.Rejected
	sent()
	c.conns.setCurrent(p, answer)
	c.log.Info("porin-proxy is connected", "version", answer.Version, "pid", answer.PID, "sets", len(h.Rules.Rules))
	c.sendLater(p, c.rules.current()) // changes that did not find this connection, if there are any
	return p, gone, nil
}

// handle answers the proxy.
func (c *Client) handle(ctx context.Context, p *proxyConn, m message, end func()) error {
	defer func() { closeFiles(m.files) }()
	switch m.Method {
	case methodLearn:
		return handleLearn(ctx, c.names, m)
	case methodHold:
		var body hold
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		sockets, err := socketsOf(&m, body.Sockets)
		if err != nil {
			return err
		}
		return c.sockets.replace(sockets)
	case methodReport:
		var body report
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		c.conns.recordReport(p, body)
		return nil
	case methodRequests:
		var body requestBatch
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return err
		}
		c.requests.Append(body.Requests, body.Lost)
		return nil
	case methodReplaced:
		c.conns.clearCurrent(p)
		end()
		return nil
	}
	return fault.New(fault.NotFound, fmt.Sprintf("this version of the agent (%s) knows no call %q", version.Of(), m.Method))
}
