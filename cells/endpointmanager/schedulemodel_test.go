package endpointmanager_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpoint"
)

// The model: a life begins with an ADD that succeeded, and ends with a DEL or a GC that began later, or with the ADD of
// another container of its pod that did. What ended is gone; what did not is there, with the address it was given.

// life is what the model says of an attachment.
type life int

const (
	none life = iota
	either
	alive
)

// lifeOf returns the latest successful ADD of an attachment and what has become of it. A call that has not ended may
// have ended it or not.
func (r *simRuntime) lifeOf(a endpoint.Attachment) (born *simOp, is life) {
	for _, o := range r.ops {
		_, ended, err := o.outcome()
		if o.verb == "ADD" && o.attachment == a && ended && err == nil {
			born, is = o, alive
		}
	}
	if born == nil {
		return nil, none
	}
	for _, o := range r.ops {
		if o.began > born.began {
			is = min(is, r.endedBy(born, o))
		}
	}
	return born, is
}

// endedBy says what a later call has made of a life.
func (r *simRuntime) endedBy(born, o *simOp) life {
	_, ended, err := o.outcome()
	done := ended && err == nil
	switch {
	case o.verb == "DEL" && o.attachment == born.attachment, o.verb == "ADD" && o.attachment != born.attachment && o.pod == born.pod:
		if done {
			return none
		}
		return either
	case o.verb == "ADD" && o.attachment == born.attachment: // an ADD that failed may have made room for itself
		return either
	case o.verb == "GC" && !o.valid[born.attachment]:
		return either // it may have been withheld
	}
	return alive
}

// attached are the attachments that the runtime takes for valid.
func (r *simRuntime) attached() map[endpoint.Attachment]bool {
	valid := map[endpoint.Attachment]bool{}
	for _, container := range sortedContainers() {
		a := endpoint.Attachment{ContainerID: container, IfName: "eth0"}
		if _, is := r.lifeOf(a); is == alive {
			valid[a] = true
		}
	}
	return valid
}

// check holds what the agent shows at any moment against the model.
func (r *simRuntime) check() error {
	agent := r.serves()
	if agent == nil {
		return nil
	}
	if line := r.brokenPromise(); line != "" {
		return errors.New(line)
	}
	owners := map[string]endpoint.Attachment{}
	ready := map[endpoint.Attachment]endpoint.Endpoint{}
	for _, ep := range agent.table.List() {
		if ep.State != endpoint.Ready {
			continue
		}
		ready[ep.Spec.Attachment] = ep
		addr := ep.Addresses.IPv4.String()
		if other, ok := owners[addr]; ok {
			return fmt.Errorf("address %s is owned by %s and by %s", addr, other, ep.Spec.Attachment)
		}
		owners[addr] = ep.Spec.Attachment
	}
	for _, container := range sortedContainers() {
		a := endpoint.Attachment{ContainerID: container, IfName: "eth0"}
		if err := r.checkOne(a, ready); err != nil {
			return err
		}
	}
	return nil
}

func (r *simRuntime) checkOne(a endpoint.Attachment, ready map[endpoint.Attachment]endpoint.Endpoint) error {
	born, is := r.lifeOf(a)
	ep, there := ready[a]
	if is == alive {
		told, _, _ := born.outcome()
		if !there || ep.Addresses != told.Addresses || ep.Spec.Began != born.began {
			return fmt.Errorf("%s was attached by %s with %v, and is there: %t, with %v", a, born.name, told.Addresses.List(), there, ep.Addresses.List())
		}
		if owner := r.kernel.Owner(ep.Addresses.IPv4); owner != ep.Host.Index {
			return fmt.Errorf("%s: its address leads to link %d and not to %d", a, owner, ep.Host.Index)
		}
		if of := r.policies.ids()[ep.ID]; of != a.String() {
			return fmt.Errorf("%s: the policies of ID %d are those of %q", a, ep.ID, of)
		}
	}
	if !there {
		return nil
	}
	for _, o := range r.ops {
		_, ended, err := o.outcome()
		if o.verb == "DEL" && o.attachment == a && ended && err == nil && ep.Spec.Began < o.began && !r.forgotten(o) {
			return fmt.Errorf("%s began at %s and is there after %s", a, ep.Spec.Began, o.name)
		}
	}
	return nil
}

// forgotten reports whether the deletion of an unknown attachment could not be written, and the agent that knew of it
// is gone: a full disk is no reason to keep a pod from going.
func (r *simRuntime) forgotten(o *simOp) bool {
	unwritten := fmt.Sprintf(" ledger.note %s %d: %v", o.attachment, o.began, errInjected)
	r.scheduler.mu.Lock()
	defer r.scheduler.mu.Unlock()
	for i, line := range r.log {
		if agent, ok := strings.CutSuffix(line, unwritten); ok && slices.Contains(r.log[i:], agent+" is killed") {
			return true
		}
	}
	return false
}

// compare holds everything that there is against the model, when nothing is under way.
func (r *simRuntime) compare() error {
	agent := r.serves()
	want := map[endpoint.Attachment]string{}
	pods := map[string]string{}
	for container, pod := range podOf {
		a := endpoint.Attachment{ContainerID: container, IfName: "eth0"}
		_, is := r.lifeOf(a)
		_, there := r.endpoint(a)
		if is == either && there || is == alive {
			want[a], pods[pod] = "committed", a.String()
		}
	}
	if err := r.compareLabels(agent); err != nil {
		return err
	}
	n := len(want)
	if got := r.disk.Phases(); !maps.Equal(got, want) {
		return fmt.Errorf("the ledger has %v, want %v", got, want)
	}
	if got := len(agent.table.List()); got != n {
		return fmt.Errorf("the table has %d endpoints, want %d", got, n)
	}
	if got, want := r.kernel.State(), (datapathtest.State{Links: n, Addresses: n, Endpoints: n, Attached: n}); got != want {
		return fmt.Errorf("the kernel has %+v, want %+v", got, want)
	}
	if got := slices.Sorted(maps.Values(r.policies.ids())); len(got) != n {
		return fmt.Errorf("the kernel has policies of %v, want those of %d endpoints", got, n)
	}
	if links := r.kernel.HostEnds(); len(links) != n {
		return fmt.Errorf("there are %d host ends, want %d", len(links), n)
	}
	if used := agent.allocator.Usage().Allocations; len(used) != n {
		return fmt.Errorf("%d addresses are in use, want %d: %v", len(used), n, used)
	}
	agent.published.mu.Lock()
	defer agent.published.mu.Unlock()
	if got := agent.published.byPod; !maps.Equal(got, pods) {
		return fmt.Errorf("published is %v, want %v", got, pods)
	}
	if refused := agent.table.Refused(); refused != 0 {
		return fmt.Errorf("%d transitions were refused", refused)
	}
	return nil
}

// sortedContainers is for what must come in the same order each time.
func sortedContainers() []string { return slices.Sorted(maps.Keys(podOf)) }
