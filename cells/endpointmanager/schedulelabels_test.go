package endpointmanager_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// labelChange is one change, as the agent follows the Kubernetes API.
type labelChange struct {
	value string
	ended bool // guarded by the scheduler's lock, as is done
	done  bool // the agent has said so
}

// changeLabels changes the labels of an endpoint, as the agent does for the Kubernetes API: no two changes of an
// endpoint at a time.
func (r *simRuntime) changeLabels() {
	a, ep, ok := r.readyEndpoint()
	if !ok {
		return
	}
	changes := r.labels[ep.Host.Index]
	if len(changes) > 0 && !r.endedChange(changes[len(changes)-1]) {
		return
	}
	time.Sleep(time.Millisecond) // no two of them begin at the same time
	c := &labelChange{value: fmt.Sprint(len(changes) + 1)}
	r.labels[ep.Host.Index] = append(changes, c)
	r.say("the labels of %s change to %s", ep.Spec.Attachment, c.value)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := a.service.Update(ctx, ep.Spec.Attachment, endpoint.Metadata{Labels: map[string]string{"app": c.value, "free": fmt.Sprint(len(changes)%2 == 0)}})
		dead := r.isDead(a.process)
		if !dead { // else several calls end at once, in any order
			r.say("the change of %s to %s ends: %v", ep.Spec.Attachment, c.value, err)
		}
		r.scheduler.mu.Lock()
		defer r.scheduler.mu.Unlock()
		c.ended, c.done = true, err == nil && !dead
	}()
}

// readyEndpoint picks an endpoint that is ready.
func (r *simRuntime) readyEndpoint() (agent *simAgent, ep endpoint.Endpoint, ok bool) {
	if agent = r.serves(); agent == nil {
		return nil, ep, false
	}
	ready := slices.DeleteFunc(agent.table.List(), func(ep endpoint.Endpoint) bool { return ep.State != endpoint.Ready })
	if len(ready) == 0 {
		return nil, ep, false
	}
	slices.SortFunc(ready, func(a, b endpoint.Endpoint) int {
		return strings.Compare(a.Spec.Attachment.String(), b.Spec.Attachment.String())
	})
	return agent, ready[r.rng.IntN(len(ready))], true
}

// repair repairs an endpoint, as the doctor does. It must neither end what is there nor bring back what is gone.
func (r *simRuntime) repair() {
	a, ep, ok := r.readyEndpoint()
	if !ok {
		return
	}
	time.Sleep(time.Millisecond) // no two calls begin at the same time
	r.say("%s is to be repaired", ep.Spec.Attachment)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := a.service.Repair(ctx, ep.Spec.Attachment)
		if !r.isDead(a.process) { // else several calls end at once, in any order
			r.say("the repair of %s ends: %v", ep.Spec.Attachment, err)
		}
	}()
}

func (r *simRuntime) endedChange(c *labelChange) bool {
	r.scheduler.mu.Lock()
	defer r.scheduler.mu.Unlock()
	return c.ended
}

// compareLabels compares labels with the changes: an endpoint has the last confirmed change, or a later change. The
// policy selects all endpoints without the label that frees them, or is not there.
func (r *simRuntime) compareLabels(agent *simAgent) error {
	restricted := map[bool][]string{} // whose labels do not free them
	for _, ep := range agent.table.List() {
		metadata, err := endpoint.DecodeMetadata(ep.Metadata)
		if err != nil {
			return err
		}
		got, may := metadata.Labels["app"], r.mayHave(ep)
		if !slices.Contains(may, got) {
			return fmt.Errorf("%s has the label %q, want one of %q", ep.Spec.Attachment, got, may)
		}
		verdict := agent.policies.View().Evaluate(ep.Addresses.IPv4, netip.AddrFrom4([4]byte{192, 0, 2, 1}), model.TCP, 80)
		is := verdict.Egress.Value() != engine.ValueAllow
		if metadata.Labels["free"] != "true" {
			restricted[is] = append(restricted[is], ep.Spec.Attachment.String())
		} else if is {
			return fmt.Errorf("%s is restricted, although its labels free it", ep.Spec.Attachment)
		}
	}
	if len(restricted[true]) > 0 && len(restricted[false]) > 0 {
		return fmt.Errorf("the policy restricts %v, and not %v", restricted[true], restricted[false])
	}
	return nil
}

// mayHave returns the values that the label of an endpoint may have.
func (r *simRuntime) mayHave(ep endpoint.Endpoint) (values []string) {
	r.scheduler.mu.Lock()
	defer r.scheduler.mu.Unlock()
	for _, c := range slices.Backward(r.labels[ep.Host.Index]) {
		if values = append(values, c.value); c.done {
			return values
		}
	}
	return append(values, "") // of the ADD
}
