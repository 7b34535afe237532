package control

import (
	"context"
	"errors"

	"porin.dev/porin/cells/policy"
)

// ImportNames implements [policy.NameExchange]. A proxy that does not answer has to connect again.
func (c *Client) ImportNames(ctx context.Context) {
	c.mu.Lock()
	c.taking = true
	c.mu.Unlock()
	if p := c.conns.get(); p != nil {
		c.importNames(ctx, p)
	}
}

// importNamesLater takes names that the proxy has learned, if they were not before: not until policies are about to be written.
func (c *Client) importNamesLater(p *proxyConn) {
	c.mu.Lock()
	taking := c.taking
	c.mu.Unlock()
	if taking {
		p.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, helloTimeout)
			defer cancel()
			c.importNames(ctx, p)
		})
	}
}

// PublishClasses implements [policy.NameExchange].
func (c *Client) PublishClasses(classes policy.NameClasses, inForce uint32) {
	classFiles(c.cfg.Socket, c.log).PublishClasses(classes, inForce)
}

// importNames has the names be known that the proxy has learned.
func (c *Client) importNames(ctx context.Context, p *proxyConn) {
	var answer journalContents
	_, err := p.peer.call(ctx, methodTakeNames, struct{}{}, &answer)
	if err == nil {
		c.replay(p, answer)
		return
	}
	if !errors.Is(err, errPeerGone) {
		c.log.Warn("what the proxy has learned of names is taken over when it connects next", "error", err)
		_ = p.peer.wire.close()
	}
}

// replay has the names be known that the proxy has learned.
func (c *Client) replay(p *proxyConn, l journalContents) {
	if len(l.Learned) == 0 {
		return
	}
	c.names.Replay(l.Learned)
	p.background(func(ctx context.Context) { c.finishReplay(ctx, p, l.Mark) })
}

// finishReplay has the proxy forget what it has learned, when that is in the datapath and outlives the agent.
func (c *Client) finishReplay(ctx context.Context, p *proxyConn, mark uint64) {
	err := c.names.FinishReplay(ctx)
	if err == nil {
		_, err = p.peer.call(ctx, methodReplayed, replayed{mark}, nil)
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn("what the proxy has learned of names without the agent is taken over when it connects next", "error", err)
	}
}
