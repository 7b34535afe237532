package policy

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/keylock"
	"porin.dev/porin/internal/task"
)

// Learner learns the addresses of names. A DNS proxy calls it with each answer.
type Learner interface {
	// Learn does not block. When it returns no wait, the rules that match the name decide connections of all endpoints to
	// the addresses, from the first packet that follows; otherwise they do when wait has returned. wait returns an error
	// soon after its ctx ends. It is an error, too, when there is no room for an address. The name is a text of package
	// dnsname. It may be called concurrently.
	Learn(endpoint uint16, name string, addresses []dnsname.Address) (wait func(ctx context.Context) error, err error)
}

// LearnAndWait returns when the addresses are in force, or soon after ctx has ended.
func LearnAndWait(ctx context.Context, l Learner, endpoint uint16, name string, addresses []dnsname.Address) error {
	wait, err := l.Learn(endpoint, name, addresses)
	if err != nil || wait == nil {
		return err
	}
	return wait(ctx)
}

// Connections knows the open connections of this node's endpoints. It may be called concurrently.
type Connections interface {
	// InUse sets the value of each key to whether the endpoint has an open connection to the address. It reads all
	// connections of the node: 0.3 s for a million.
	InUse(addresses map[names.Use]bool) error
}

const (
	// maxDomainAddresses bounds the addresses that rules for names select. Each takes a range in the datapath, which has
	// room for four times as many.
	maxDomainAddresses = 16384
	// leastAddresses of names are left to each endpoint, whatever others need.
	leastAddresses = maxDomainAddresses / 256
	// evictedAtOnce more addresses than needed are evicted: to find the largest endpoint takes a while.
	evictedAtOnce = 256
	// expireInterval is how often expired addresses are removed, and renewed lifetimes saved.
	expireInterval = 5 * time.Second
	// saveDelay is the time in which changes are collected before they are saved.
	saveDelay = 200 * time.Millisecond
	// savePause times the duration of a write passes before the next one: the file may have tens of megabytes.
	savePause = 10
	// namesFile is the file of names, in [Config.Dir].
	namesFile = "names"
)

var errNamesFull = fault.New(fault.Exhausted, fmt.Sprintf("the names that policies select have more than %d addresses", maxDomainAddresses))

// Names holds the addresses of the names that policies select peers by: a [Learner]. They outlive the agent. The
// [Queue] writes them.
type Names struct {
	log   *slog.Logger
	known *names.Names
	path  string // "" keeps nothing
	task  *task.Task
	room  int

	expired   time.Time // when round removed expired addresses last
	saveAfter time.Time // when round may save again

	// The queue sets these before anything is learned.
	view    *View
	changed func() // starts a write of the new names

	onScopeChange func() // see [Names.OnScopeChange]

	saving sync.Mutex // held while the file is written
	loaded bool       // saving guards it

	// The holder of the view's lock uses these.
	selections    map[model.DNSRule]*names.Selection
	rules         map[*names.Selection]model.DNSRule
	inEngine      map[model.DNSRule]map[netip.Addr]struct{} // the engine's content
	count         map[netip.Addr]int                        // of the rules in told that have an address
	takenRevision uint64                                    // the revision of known

	learning keylock.Locks[uint16] // by endpoint

	hasRoom atomic.Bool                               // leftOut is empty; read without the lock
	mu      sync.Mutex                                // guards the field below
	leftOut map[netip.Addr]map[model.DNSRule]struct{} // what there is no room for
}

var _ Learner = (*Names)(nil)

// NewNames returns the names of a [Queue]. With nil connections, an address goes when its TTL has ended.
func NewNames(cfg Config, connections Connections, log *slog.Logger) *Names {
	n := &Names{
		log: log, room: maxDomainAddresses, changed: func() {}, onScopeChange: func() {}, selections: map[model.DNSRule]*names.Selection{}, rules: map[*names.Selection]model.DNSRule{},
		inEngine: map[model.DNSRule]map[netip.Addr]struct{}{}, count: map[netip.Addr]int{}, leftOut: map[netip.Addr]map[model.DNSRule]struct{}{},
	}
	if cfg.Dir != "" {
		n.path = filepath.Join(cfg.Dir, namesFile)
	}
	c := names.DefaultConfig()
	c.Protected = n.isProtected
	c.InUse = func(expired map[names.Use]bool) {
		if connections == nil {
			return
		}
		if err := connections.InUse(expired); err != nil {
			log.Warn("connections cannot be read: addresses of names whose TTL has ended are kept; trying again", "in", expireInterval, "error", err)
			for one := range expired {
				expired[one] = true
			}
		}
	}
	n.known = names.New(c)
	n.hasRoom.Store(true)
	n.task = task.Every(log, task.Round{Name: "policy-names", Run: n.round, Interval: expireInterval, Later: true})
	return n
}

// Task is the loop that drops what has expired, and saves. [Queue.Start] starts it.
func (n *Names) Task() *task.Task { return n.task }

// isProtected reports whether the address is known in the cluster.
func (n *Names) isProtected(addr netip.Addr) (protected bool) {
	n.view.read(func(e *engine.Engine) { protected = e.End(addr).Kind != model.World })
	return protected
}

// Learn implements [Learner]. The returned function learns unknown addresses: it waits for changes of policies, and
// writes for milliseconds if there are many addresses.
func (n *Names) Learn(endpoint uint16, name string, addresses []dnsname.Address) (wait func(context.Context) error, err error) {
	if n.known.Refresh(endpoint, name, addresses) && n.hasRoom.Load() {
		return nil, nil
	}
	return func(ctx context.Context) error { return n.learn(ctx, endpoint, name, addresses) }, nil
}

// manyAddresses is from how many addresses on an answer keeps others of its endpoint waiting until it is in the
// datapath.
const manyAddresses = 16

// learn returns when the addresses are in the datapath. Answers of one endpoint are learned one after the other, so
// that one which asks for much delays others by one of its answers at most. An answer with fewer addresses than
// manyAddresses does not keep the next one waiting.
func (n *Names) learn(ctx context.Context, endpoint uint16, name string, addresses []dnsname.Address) error {
	release, err := n.learning.Acquire(ctx, endpoint)
	if err != nil {
		return fmt.Errorf("learn %s: %w", name, err)
	}
	release = sync.OnceFunc(release)
	defer release()
	revision := n.known.Learn(endpoint, name, addresses)
	n.task.Trigger()
	if len(addresses) < manyAddresses {
		release()
	}
	if !n.known.InForce(revision) {
		n.changed()
		if err := n.known.Wait(ctx, revision); err != nil {
			return fmt.Errorf("wait until the addresses of %s are in the datapath: %w", name, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range addresses {
		if len(n.leftOut[names.Normalize(a.Addr)]) > 0 {
			return fmt.Errorf("learn %s: %w", name, errNamesFull)
		}
	}
	return nil
}

// removeEndpoint removes the names that a deleted endpoint has asked for. Nothing is learned for its ID until another
// endpoint has it.
func (n *Names) removeEndpoint(endpoint uint16) {
	n.known.RemoveEndpoint(endpoint)
	n.task.Trigger()
	n.writeChanges()
}

// writeChanges starts a write if names are new.
func (n *Names) writeChanges() {
	select {
	case <-n.known.Changed():
		n.changed()
	default:
	}
}

func (n *Names) round(ctx context.Context) error {
	if err := task.Sleep(ctx, min(max(saveDelay, time.Until(n.saveAfter)), expireInterval)); err != nil {
		return err // the queue saves when it stops
	}
	if now := time.Now(); now.Sub(n.expired) >= expireInterval {
		n.expired = now
		n.known.Expire()
		n.writeChanges()
	}
	begin := time.Now()
	if begin.Before(n.saveAfter) {
		return nil
	}
	err := n.save()
	n.saveAfter = time.Now().Add(savePause * time.Since(begin))
	return err
}

// load adds the addresses that a previous agent has saved for the endpoints. If the file cannot be read, pods have to
// ask again.
func (n *Names) load(live []endpoint.Endpoint) {
	n.saving.Lock()
	defer n.saving.Unlock()
	if n.loaded {
		return
	}
	n.loaded = true
	if n.path == "" {
		return
	}
	isLive := func(id uint16) bool {
		return slices.ContainsFunc(live, func(ep endpoint.Endpoint) bool { return ep.ID == id })
	}
	if err := n.known.Load(n.path, isLive); err != nil {
		n.log.Warn("the addresses of names that policies select are lost: pods reach them when they have asked for the names again", "error", err)
	}
}

// save does nothing before load: the file is still to be loaded.
func (n *Names) save() error {
	n.saving.Lock()
	defer n.saving.Unlock()
	if !n.loaded || n.path == "" {
		return nil
	}
	return n.known.Save(n.path)
}

// followLocked has the rules selected, and returns what has changed since it was called last, as far as there is room.
func (n *Names) followLocked(rules []model.DNSRule) []engine.DomainChange {
	added := false
	for _, rule := range rules {
		if n.selections[rule] != nil {
			continue
		}
		compiled, err := dnsname.Compile([]model.DNSRule{rule})
		if err != nil {
			n.log.Error("a rule for names matches nothing", "error", err) // manifests are checked for that
			continue
		}
		s := n.known.Select(compiled)
		n.selections[rule], n.rules[s], n.inEngine[rule] = s, rule, map[netip.Addr]struct{}{}
		added = true
	}
	if added {
		n.onScopeChange()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	changes := map[model.DNSRule]*engine.DomainChange{}
	of := func(rule model.DNSRule) *engine.DomainChange {
		if changes[rule] == nil {
			changes[rule] = &engine.DomainChange{Rule: rule}
		}
		return changes[rule]
	}
	take := func() {
		var taken []names.Change
		taken, n.takenRevision = n.known.Take()
		for _, c := range taken {
			if rule, ok := n.rules[c.Selection]; ok { // else it is one of peek
				for _, addr := range c.Removed {
					if n.remove(rule, addr) {
						of(rule).Remove = append(of(rule).Remove, addr)
					}
				}
				for _, addr := range c.Added { // at first the engine does not have it
					if n.leftOut[addr] == nil {
						n.leftOut[addr] = map[model.DNSRule]struct{}{}
					}
					n.leftOut[addr][rule] = struct{}{}
				}
			}
		}
	}
	take()
	if missing := len(n.count) + len(n.leftOut) - n.room; missing > 0 && len(n.leftOut) > 0 {
		n.known.Evict(missing+evictedAtOnce, n.room, leastAddresses)
		take()
	}
	for addr, rules := range n.leftOut {
		if n.count[addr] == 0 && len(n.count) >= n.room {
			continue
		}
		delete(n.leftOut, addr)
		for rule := range rules {
			n.inEngine[rule][addr] = struct{}{}
			n.count[addr]++
			of(rule).Add = append(of(rule).Add, addr)
		}
	}
	n.hasRoom.Store(len(n.leftOut) == 0)
	list := make([]engine.DomainChange, 0, len(changes))
	for _, c := range changes {
		list = append(list, *c)
	}
	return list
}

// remove removes an address of a rule, and reports whether the engine has it.
func (n *Names) remove(rule model.DNSRule, addr netip.Addr) bool {
	if rules := n.leftOut[addr]; rules != nil {
		if delete(rules, rule); len(rules) == 0 {
			delete(n.leftOut, addr)
		}
	}
	if _, ok := n.inEngine[rule][addr]; !ok {
		return false
	}
	delete(n.inEngine[rule], addr)
	if n.count[addr]--; n.count[addr] == 0 {
		delete(n.count, addr)
	}
	return true
}

// endOthersLocked ends the selections of all other rules: the engine has forgotten their addresses. It reports whether
// there is room now for addresses that had none.
func (n *Names) endOthersLocked(used map[model.DNSRule]struct{}) (room bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	removed := false
	for rule, s := range n.selections {
		if _, ok := used[rule]; ok {
			continue
		}
		s.Close()
		for addr := range n.inEngine[rule] {
			n.remove(rule, addr)
		}
		for addr := range n.leftOut {
			n.remove(rule, addr)
		}
		delete(n.selections, rule)
		delete(n.rules, s)
		delete(n.inEngine, rule)
		removed = true
	}
	if removed {
		n.onScopeChange()
	}
	n.hasRoom.Store(len(n.leftOut) == 0)
	return len(n.leftOut) > 0 && len(n.count) < n.room
}

// confirmLocked says that what was followed is in the datapath.
func (n *Names) confirmLocked() { n.known.Confirm(n.takenRevision) }

// leftOutCount returns how many addresses there is no room for.
func (n *Names) leftOutCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.leftOut)
}

// peek returns the addresses that the rules would select.
func (n *Names) peek(rules []model.DNSRule) (changes []engine.DomainChange) {
	for _, rule := range rules {
		compiled, err := dnsname.Compile([]model.DNSRule{rule})
		if err != nil {
			continue
		}
		s := n.known.Select(compiled)
		changes = append(changes, engine.DomainChange{Rule: rule, Add: s.Addresses()})
		s.Close()
	}
	return changes
}

// namesOf returns the names of an address that one of the rules matches, sorted.
func (n *Names) namesOf(addr netip.Addr, rules []model.DNSRule) (found []string) {
	if len(rules) == 0 {
		return nil
	}
	compiled, err := dnsname.Compile(rules)
	if err != nil {
		return nil
	}
	for _, l := range n.known.List() {
		if _, ok := l.Addresses[addr.Unmap()]; ok && compiled.Match(l.Name) {
			found = append(found, l.Name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// maxNamesOf bounds what is told of an address: a pod may give it any number of names.
const maxNamesOf = 3

// NamesOf returns names that an endpoint of this node has asked for and whose answers had the address, the last answers
// first. A pod and a server on the network say.
func (n *Names) NamesOf(endpoint uint16, addr netip.Addr) []string {
	return n.known.NamesOf(endpoint, addr, maxNamesOf)
}

// domainRules returns the rules for names that a policy has.
func domainRules(p model.Policy) (rules []model.DNSRule) {
	if p.Egress == nil {
		return nil
	}
	for _, r := range *p.Egress {
		for _, peer := range r.Peers {
			if peer.Domain != (model.DNSRule{}) {
				rules = append(rules, peer.Domain)
			}
		}
	}
	return rules
}
