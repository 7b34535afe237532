package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/internal/fault"
)

// ruleSync has the rules that each proxy is to have, and gives them to it: all of them, when it has an older version.
type ruleSync struct {
	scope func() policy.NameScope // sent with the rules

	mu      sync.Mutex // guards the fields below
	rules   map[uint32]json.RawMessage
	version uint64 // raised with each change
	partial bool   // the agent starts: there may be more rules than it knows of
}

func newRuleSync(scope func() policy.NameScope) ruleSync {
	return ruleSync{scope: scope, rules: map[uint32]json.RawMessage{}, version: 1, partial: true}
}

// change returns the version with further rules, and without some.
func (x *ruleSync) change(added map[uint32]json.RawMessage, removed []uint32) (version uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.Copy(x.rules, added)
	for _, n := range removed {
		delete(x.rules, n)
	}
	x.version++
	return x.version
}

func (x *ruleSync) current() (version uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.version
}

func (x *ruleSync) isEmpty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.rules) == 0
}

func (x *ruleSync) snapshot() snapshot {
	x.mu.Lock()
	s := snapshot{Version: x.version, Partial: x.partial, Rules: maps.Clone(x.rules)}
	x.mu.Unlock()
	scope := x.scope() // after the version: newer rules are sent again
	s.Names = &scope
	return s
}

// send gives the proxy the rules that there are, unless it has the version that is needed.
func (x *ruleSync) send(ctx context.Context, p *proxyConn, needed uint64) (rejectedRules, error) {
	select {
	case p.sending <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the proxy, which has not answered about other rules: %w", context.Cause(ctx))
	}
	defer func() { <-p.sending }()
	if p.version >= needed {
		return p.rejected, nil
	}
	rules := x.snapshot()
	var answer rulesAnswer
	if _, err := p.rpc.call(ctx, methodRules, rules, &answer); err != nil {
		return nil, err
	}
	p.version, p.rejected = rules.Version, answer.Rejected
	return p.rejected, nil
}

// Supports implements [policy.Proxy]: the rules of this version.
func (c *Client) Supports(rules model.Layer7) error { return proxy.Supports(rules) }

// Prepare implements [policy.Proxy]. It waits for a proxy that is away.
func (c *Client) Prepare(ctx context.Context, rules map[uint32]model.Layer7) error {
	encoded := map[uint32]json.RawMessage{}
	for number, one := range rules {
		text, err := json.Marshal(one)
		if err != nil {
			return fmt.Errorf("encode rules %d: %w", number, err)
		}
		encoded[number] = text
	}
	needed := c.rules.change(encoded, nil)
	c.need()
	c.sendPrevious(ctx, needed)
	for {
		p, err := c.conns.await(ctx)
		if err != nil {
			return err
		}
		rejected, err := c.rules.send(ctx, p, needed)
		switch {
		case errors.Is(err, errConnClosed):
			c.conns.clearCurrent(p)
			continue
		case err != nil && c.conns.get() != p: // it was replaced meanwhile
			continue
		case err != nil:
			return err
		}
		for number := range rules {
			if text, ok := rejected[number]; ok {
				return fault.New(fault.Invalid, fmt.Sprintf("porin-proxy cannot use rules %d: %s", number, text))
			}
		}
		return nil
	}
}

// previousTimeout bounds how long rules wait for proxies that were replaced.
const previousTimeout = time.Second

// sendPrevious gives the rules to proxies that were replaced and still serve requests, which are decided by the rows
// that are about to be written.
func (c *Client) sendPrevious(ctx context.Context, needed uint64) {
	ctx, cancel := context.WithTimeout(ctx, previousTimeout)
	defer cancel()
	current := c.conns.get()
	var sent sync.WaitGroup
	for _, p := range c.conns.list() {
		if p != current {
			sent.Go(func() {
				if _, err := c.rules.send(ctx, p, needed); err != nil {
					c.log.Debug("a proxy that was replaced does not have the rules", "error", err)
				}
			})
		}
	}
	sent.Wait()
}

// Complete says that the agent's start has ended: the proxy may forget all rules that it was not given since.
func (c *Client) Complete() {
	c.rules.mu.Lock()
	c.rules.partial = false
	c.rules.mu.Unlock()
	c.need()
	c.Release(nil)
}

// Release implements [policy.Proxy]. The proxy hears of it with the next rules.
func (c *Client) Release(numbers []uint32) {
	needed := c.rules.change(nil, numbers)
	for _, p := range c.conns.list() {
		c.sendLater(p, needed)
	}
}

// sendLater gives a proxy the rules without waiting for it.
func (c *Client) sendLater(p *proxyConn, needed uint64) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		if _, err := c.rules.send(ctx, p, needed); err != nil {
			c.log.Debug("the proxy has other rules than the agent, until the next change", "error", err)
		}
	}()
}
