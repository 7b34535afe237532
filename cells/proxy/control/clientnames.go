package control

import (
	"context"
	"errors"

	"porin.dev/porin/cells/policy"
)

// ImportNames implements [policy.NameExchange]. A proxy that does not answer has to connect again.
func (c *Client) ImportNames(ctx context.Context) {
	c.mu.Lock()
	c.importing = true
	c.mu.Unlock()
	if p := c.conns.get(); p != nil {
		c.importNames(ctx, p)
	}
}

// importNamesLater imports names that the proxy has learned, once [Client.ImportNames] was called: not before policies are about to be written.
func (c *Client) importNamesLater(p *proxyConn) {
	c.mu.Lock()
	importing := c.importing
	c.mu.Unlock()
	if importing {
		p.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			c.importNames(ctx, p)
		})
	}
}

// PublishClasses implements [policy.NameExchange].
func (c *Client) PublishClasses(classes policy.NameClasses, inForce uint32) {
	classFiles(c.cfg.Socket, c.log).PublishClasses(classes, inForce)
}

// importNames asks the proxy for its journal. If that fails, it closes the connection, so that the proxy connects anew.
func (c *Client) importNames(ctx context.Context, p *proxyConn) {
	var answer importNamesAnswer
	_, err := p.rpc.call(ctx, methodImportNames, struct{}{}, &answer)
	if err == nil {
		c.addNames(p, answer)
		return
	}
	if !errors.Is(err, errConnClosed) {
		c.log.Warn("the names that the proxy has learned are imported when it connects next", "error", err)
		_ = p.rpc.wire.close()
	}
}

// addNames gives the journal to [policy.Names], and in the background has the proxy remove it.
func (c *Client) addNames(p *proxyConn, answer importNamesAnswer) {
	if len(answer.Learned) == 0 {
		return
	}
	c.names.Import(answer.Learned)
	p.background(func(ctx context.Context) { c.finishImport(ctx, p, answer.Mark) })
}

// finishImport has the proxy remove from its journal what is in the datapath and outlives the agent.
func (c *Client) finishImport(ctx context.Context, p *proxyConn, mark uint64) {
	err := c.names.FinishImport(ctx)
	if err == nil {
		_, err = p.rpc.call(ctx, methodNamesImported, namesImported{mark}, nil)
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn("the names that the proxy has learned stay in its journal until it connects next", "error", err)
	}
}
