package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// View is what the policies say now, and what of it is in the datapath: the readers' side of a [Queue]. Its methods may
// be called concurrently.
type View struct {
	enforcer Enforcer
	writing  chan struct{} // the lock of a write and of a comparison with the kernel: it holds one token then

	mu sync.RWMutex // guards the fields below; their writer holds writing, too
	desired
	applied Applied
	news    chan struct{} // closed when [Applied.Awaited] is told
}

// Applied is what became of the changes so far.
type Applied struct {
	Revision uint64        // changes that were written since the start of the agent
	Failures uint64        // tries that failed
	Duration time.Duration // of the last success
	Err      error         // why the last change is not written; nil when all is
	Since    time.Time     // of Err
	Withheld error         // why the datapath denies what needs layer 7 rules which the proxy does not have; nil when it has all
	Awaited  int           // layer 7 rules that the proxy can apply, and does not have yet
}

// Evaluate decides about a connection between two addresses, as they are after translation.
func (v *View) Evaluate(from, to netip.Addr, protocol model.Protocol, port uint16) (verdict engine.Verdict) {
	v.read(func(e *engine.Engine) { verdict = e.Evaluate(from, to, protocol, port) })
	return verdict
}

// RemotePod returns the pod of another node that has an address.
func (v *View) RemotePod(addr netip.Addr) (ep model.Endpoint, ok bool) {
	v.read(func(e *engine.Engine) { ep, ok = e.Endpoint(e.End(addr).Endpoint) })
	return ep, ok && ep.Kind == model.Pod && !ep.Local
}

// remoteNamed returns the addresses of a pod of another node, of its first interface, IPv4 first.
func (v *View) remoteNamed(namespace, name string) (found []netip.Addr) {
	first := ""
	v.read(func(e *engine.Engine) {
		for ep := range e.Endpoints() {
			if ep.Namespace == namespace && ep.Name == name && !ep.Local && (first == "" || ep.Key < first) {
				first, found = ep.Key, ep.Addresses
			}
		}
	})
	return found
}

// Applied says what became of the changes so far.
func (v *View) Applied() Applied {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.applied
}

// tellAwaited wakes callers that wait for layer 7 rules. awaited is the number of rule sets that the proxy has not
// acknowledged; rows with the others are written.
func (v *View) tellAwaited(awaited int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.applied.Awaited = awaited
	close(v.news)
	v.news = make(chan struct{})
}

// read calls f with the engine, which does not change meanwhile.
func (v *View) read(f func(*engine.Engine)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	f(v.engine)
}

// known returns an endpoint that the engine was told of, or nil.
func (v *View) known(key string) *desiredEndpoint {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.endpoint(key)
}

// gaveUp returns why the engine does not have a policy as it is, nil when it has.
func (v *View) gaveUp(id model.PolicyID) error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.givenUp[id].why
}

// notInForce returns the policies that the engine does not have as they are, sorted.
func (v *View) notInForce() []model.PolicyID {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(v.givenUp), func(a, b model.PolicyID) int { return cmp.Compare(a.String(), b.String()) })
}

// policyCount returns how many policies the engine has.
func (v *View) policyCount() int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return len(v.policies)
}

// localEndpoints returns the keys of the endpoints of this node that the engine has.
func (v *View) localEndpoints() (keys []string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for key := range v.locals {
		keys = append(keys, key)
	}
	return keys
}

// lock returns when nothing is being written. Until unlock nothing is.
func (v *View) lock(ctx context.Context) error {
	select {
	case v.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait until a change of policies is written: %w", ctx.Err())
	}
}

// tryLock is lock without waiting. It returns false when another goroutine holds the lock.
func (v *View) tryLock() bool {
	select {
	case v.writing <- struct{}{}:
		return true
	default:
		return false
	}
}

func (v *View) unlock() { <-v.writing }

// compare returns where the kernel does not have what the engine says. While a change cannot be written there is
// nothing to compare.
func (v *View) compare(ctx context.Context) ([]Difference, error) {
	if err := v.lock(ctx); err != nil {
		return nil, err
	}
	defer v.unlock()
	if applied := v.Applied(); applied.Revision == 0 || applied.Err != nil {
		return nil, nil
	}
	return v.enforcer.Compare(v.engine, v.locals)
}

// copyEngine returns an engine that knows the same policies and endpoints. Without audit, none of the endpoints is in
// audit.
func (v *View) copyEngine(audit bool) *engine.Engine {
	v.mu.RLock()
	u, config := v.everything(), v.config
	v.mu.RUnlock()
	for i := range u.SetEndpoints {
		u.SetEndpoints[i].Audit = audit && u.SetEndpoints[i].Audit
	}
	config.Audit = audit && config.Audit
	e := engine.New(config)
	e.Apply(u)
	return e
}
