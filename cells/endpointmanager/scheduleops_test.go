package endpointmanager_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/deletionrecords"
)

// simOp is one call of the CNI plugin, by a runtime that keeps what it was told.
type simOp struct {
	*process
	verb       string
	attachment endpoint.Attachment
	pod        string // its UID
	began      time.Duration
	timeout    time.Duration // of an ADD
	cookie     uint64        // of the container's network namespace
	valid      map[endpoint.Attachment]bool
	cancel     context.CancelFunc

	mu    sync.Mutex // guards the fields below
	ended bool
	err   error // of what the runtime was told
	ep    endpoint.Endpoint
}

func (o *simOp) end(ep endpoint.Endpoint, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended, o.ep, o.err = true, ep, err
}

// outcome is what the runtime knows of the call.
func (o *simOp) outcome() (ep endpoint.Endpoint, ended bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ep, o.ended, o.err
}

var errNoAgent = errors.New("no agent answers")

// add is the plugin's ADD.
func (n *simNode) add(o *simOp) {
	ep, err := n.tryAdd(o)
	n.say("%s ends: %v", o.name, err)
	o.end(ep, err)
}

func (n *simNode) tryAdd(o *simOp) (none endpoint.Endpoint, err error) {
	if err := n.pass(o.process, "call"); err != nil {
		return none, err
	}
	ep, err := n.create(o)
	if passed := n.pass(o.process, "answer"); err == nil {
		err = passed
	}
	if err != nil {
		return none, err
	}
	return ep, nil
}

// create is the call and the agent's side of it: an answer that the caller does not take is undone.
func (n *simNode) create(o *simOp) (ep endpoint.Endpoint, err error) {
	a := n.serves()
	if a == nil {
		return ep, errNoAgent
	}
	spec := endpointmanagertest.Spec(o.attachment.String())
	spec.Pod.UID, spec.Began, spec.NetNSCookie = o.pod, o.began, o.cookie
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	o.mu.Lock()
	o.cancel = cancel
	o.mu.Unlock()
	if n.fault.beforeAdd != nil {
		n.fault.beforeAdd(a.service)
	}
	ep, err = a.service.Create(ctx, spec, nil)
	if err == nil && n.isDead(o.process) {
		a.service.Delete(context.Background(), o.attachment, endpoint.DeleteConfig{Began: ep.Spec.Began})
		return ep, errDead
	}
	if n.isDead(a.process) {
		err = errNoAgent
	}
	return ep, err
}

// killPlugin kills the plugin of a call, which the agent notices.
func (n *simNode) killPlugin(o *simOp) {
	n.kill(o.process)
	o.mu.Lock()
	cancel := o.cancel
	o.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	synctest.Wait() // the call has ended before anything else happens
}

// del is the plugin's DEL.
func (n *simNode) del(o *simOp) {
	err := n.tryDel(o)
	n.say("%s ends: %v", o.name, err)
	o.end(endpoint.Endpoint{}, err)
}

func (n *simNode) tryDel(o *simOp) error {
	if err := n.pass(o.process, "call"); err != nil {
		return err
	}
	err := n.delete(o)
	if !errors.Is(err, errNoAgent) {
		return errors.Join(err, n.pass(o.process, "answer"))
	}
	if err := n.record(o); err != nil {
		return err
	}
	if err := n.pass(o.process, "unlink"); err != nil {
		return err
	}
	n.removeLink(o.attachment, o.began)
	return nil
}

// delete asks the agent. Failed steps are on record there, and a success.
func (n *simNode) delete(o *simOp) error {
	a := n.serves()
	if a == nil {
		return errNoAgent
	}
	began := o.began
	if n.fault.arrivalDel {
		began = n.boot()
	}
	del := a.service.Delete
	if n.fault.decidedDel {
		del = endpointmanager.DeleteDecidedWhenPosted(a.service)
	}
	result := del(context.Background(), o.attachment, endpoint.DeleteConfig{Began: began, Sweep: true, Network: "porin"})
	err := errors.Join(result.Errors...)
	switch {
	case n.isDead(a.process), errors.Is(err, endpointmanager.ErrStopped):
		return errNoAgent
	case errors.Is(err, endpointmanager.ErrPending):
		return err
	}
	return nil
}

// record leaves a deletion record, unless an agent has come meanwhile.
func (n *simNode) record(o *simOp) error {
	if err := n.pass(o.process, "record"); err != nil {
		return err
	}
	w, err := deletionrecords.Begin(filepath.Join(n.dir, "deletions"))
	if err != nil {
		return err
	}
	defer w.Close()
	if err := n.delete(o); !errors.Is(err, errNoAgent) {
		return err
	}
	return w.Put(deletionrecords.Record{ContainerID: o.attachment.ContainerID, IfName: o.attachment.IfName, Began: o.began.Nanoseconds()})
}

// collect is the plugin's GC.
func (n *simNode) collect(o *simOp) {
	err := n.pass(o.process, "call")
	if a := n.serves(); err == nil && a != nil {
		result := a.service.Collect(context.Background(), endpointmanager.GC{Network: "porin", Valid: o.valid, Began: o.began})
		if err = result.Withheld; n.isDead(a.process) {
			err = errNoAgent
		}
	}
	n.say("%s ends: %v", o.name, err)
	o.end(endpoint.Endpoint{}, err)
}

// endpoint is what the agent that serves has of the attachment.
func (n *simNode) endpoint(a endpoint.Attachment) (endpoint.Endpoint, bool) {
	agent := n.serves()
	if agent == nil {
		return endpoint.Endpoint{}, false
	}
	ep, err := agent.table.Get(endpoint.ByAttachment(a))
	return ep, err == nil
}
