package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/task"
)

// publisher keeps this node's record in the store as it should be.
type publisher struct {
	networks cluster.Published[cluster.NodeNetwork]
	peers    *Peers
	info     cluster.Info
	version  string
	agent    string // random
	started  time.Time
	log      *slog.Logger
	task     *task.Task

	mu       sync.Mutex // guards the fields below
	foreign  string     // the agent that has overwritten this one's record
	replaced time.Time  // when, the last time

	// Of the task.
	written *cluster.NodeNetwork // what this agent has written last
	over    cluster.Version      // of the record that it has replaced; "" when there was none
	pause   time.Duration
}

// The pauses before a record is written again that another agent has overwritten, or that the store did not take.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

func newPublisher(networks cluster.Published[cluster.NodeNetwork], peers *Peers, info cluster.Info, cfg Config, log *slog.Logger) *publisher {
	p := &publisher{
		networks: networks, peers: peers, info: info, version: cfg.Version, agent: rand.Text()[:10], started: time.Now().UTC().Truncate(time.Second),
		log: log, pause: firstPause,
	}
	p.task = task.Forever(log, "node-publish", p.run)
	return p
}

func (p *publisher) run(ctx context.Context) error {
	for ctx.Err() == nil {
		view, changed := p.peers.View()
		var retry <-chan time.Time
		if err := p.publish(ctx, view); err != nil && ctx.Err() == nil {
			p.log.Warn("the node's record is not in the store; trying again", "in", p.pause, "error", err)
			retry = time.After(p.pause)
			p.pause = min(2*p.pause, lastPause)
			changed = nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry:
		}
	}
	return ctx.Err()
}

// publish writes the record when the store has another one.
func (p *publisher) publish(ctx context.Context, view View) error {
	self := view.Self
	if !view.Ready || view.StoreAway || self.Node.Key == "" {
		return nil
	}
	if view.Removed {
		if self.Node != IDOfName(self.Node.Name) {
			return nil // it continues as another incarnation soon
		}
		if err := clearRemoval(ctx, p.info, self.Node); err != nil {
			return fmt.Errorf("the node was deleted, and is there again: %w", err)
		}
	}
	next := cluster.NodeNetwork{
		Node: self.Node, Agent: p.agent, Addresses: self.Addresses, Blocks: self.Blocks, Routing: self.Routing, Health: self.Health, AgentVersion: p.version, Started: p.started, NodeUID: self.UID,
		TunnelPort: uint16(self.Tunnel.Port), Tunnel: self.Tunnel.Addresses,
	}
	if view.Own != nil {
		if self.Health == nil { // not restored, or not made, yet
			next.Health = view.Own.Health
		}
		if self.UID == "" { // not known yet
			next.NodeUID = view.Own.NodeUID
		}
		if !self.Tunnel.Observed { // others go on to send by it
			next.TunnelPort, next.Tunnel = view.Own.TunnelPort, view.Own.Tunnel
		}
		if same(*view.Own, next) || view.Own.Deleting {
			p.pause = firstPause
			return nil
		}
		if view.Own.Version != p.over { // else the watch has not told yet of what was written: a conflict says so
			if err := p.checkForeign(*view.Own); err != nil {
				return err
			}
		}
		next.Version = view.Own.Version
	}
	written, err := p.networks.Put(ctx, next)
	switch {
	case errors.Is(err, cluster.ErrExists) || errors.Is(err, cluster.ErrConflict): // the watch will tell what is there
		return nil
	case err != nil:
		return fmt.Errorf("write the record of node %s: %w", self.Node, err)
	}
	p.written, p.over = &written, next.Version
	return nil
}

func same(a, b cluster.NodeNetwork) bool {
	return a.Node == b.Node && a.Agent == b.Agent && a.Routing == b.Routing && a.AgentVersion == b.AgentVersion && a.NodeUID == b.NodeUID &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Blocks, b.Blocks) && slices.Equal(a.Health, b.Health) &&
		a.TunnelPort == b.TunnelPort && slices.Equal(a.Tunnel, b.Tunnel)
}

// checkForeign returns an error once when another agent has overwritten what this one has written: a machine with the
// same name, or the record is of a backup. It is written again after a while.
func (p *publisher) checkForeign(now cluster.NodeNetwork) error {
	if p.written == nil || p.written.Node != now.Node || now.Agent == p.agent {
		return nil
	}
	p.mu.Lock()
	p.foreign, p.replaced = now.Agent, time.Now()
	p.mu.Unlock()
	p.written = nil
	return fmt.Errorf("another agent has overwritten the record of node %s, with addresses %v: if two machines have this name, give one of them another", now.Node, now.Addresses)
}

// overwritten reports whether another agent has overwritten this one's record lately.
func (p *publisher) overwritten() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.foreign != "" && time.Since(p.replaced) < overwrittenTime
}

const overwrittenTime = 5 * time.Minute
