package policy

import (
	"context"
	"fmt"

	"porin.dev/porin/cells/policy/names"
)

// Import adds what a proxy has learned while no agent was there, with the times until which it is valid, for endpoints that are still there. Before the first write of
// policies, it is part of that. [Names.FinishImport] returns when the proxy may remove it from its journal.
func (n *Names) Import(lookups []names.Lookup) {
	if len(lookups) == 0 {
		return
	}
	n.saving.Lock()
	defer n.saving.Unlock()
	if !n.loaded {
		n.pending = append(n.pending, lookups...)
		return
	}
	select {
	case <-n.opened:
		n.restore(lookups, n.view.localIDs())
		n.needsRewrite = true
	default:
		n.restore(lookups, n.live)
	}
}

// restore expects the lock saving.
func (n *Names) restore(lookups []names.Lookup, live map[uint16]bool) {
	for _, l := range lookups {
		if live[l.Endpoint] {
			n.revision = max(n.revision, n.known.Restore(l))
		}
	}
}

// FinishImport returns when all that was imported is in the datapath, in place of what the proxy has written there, and outlives the agent.
func (n *Names) FinishImport(ctx context.Context) error {
	select {
	case <-n.opened:
	case <-ctx.Done():
		return fmt.Errorf("wait until all endpoints are restored: %w", ctx.Err())
	}
	n.saving.Lock()
	needsRewrite, revision := n.needsRewrite, n.revision
	n.needsRewrite = false
	n.saving.Unlock()
	if needsRewrite {
		if err := n.rewrite(ctx); err != nil {
			n.saving.Lock()
			n.needsRewrite = true
			n.saving.Unlock()
			return err
		}
	}
	if err := n.known.Wait(ctx, revision); err != nil {
		return fmt.Errorf("wait until the addresses that a proxy has learned are in the datapath: %w", err)
	}
	return n.save()
}

// localIDs returns the IDs of the endpoints of this node that the engine has.
func (v *View) localIDs() map[uint16]bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ids := map[uint16]bool{}
	for _, local := range v.locals {
		ids[local.ID] = true
	}
	return ids
}
