package plugin

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agent"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/deletequeue"
	"porin.dev/porin/internal/rtnl"
)

// del takes the attachment down, and then has another IPAM plugin take its addresses back: unless the attachment has begun
// another life, which has them now.
func (t *task) del() error {
	if err := t.delEndpoint(); err != nil || t.later {
		return err
	}
	return t.forward(t.deadline)
}

// delEndpoint leaves nothing that uses the addresses. The container's namespace is not looked at: it may be gone, and its
// interface goes with the host end. It fails only when another try can help.
func (t *task) delEndpoint() error {
	err := t.delByAgent(t.deadline.Add(-keptForDEL(t.Config.Timeout)))
	switch {
	case err == nil:
		return nil
	case unanswered(err):
		return t.delWithoutAgent(t.record)
	case errors.Is(err, agent.ErrTimeout):
		return t.delWithoutAgent(t.recordUnasked)
	}
	// Even so, a container that is to be gone sends nothing more.
	fault := t.agentFault("delete the endpoint of "+clip(t.ContainerID)+":"+t.IfName, err)
	fault.Code = spec.TryAgain
	if _, err := t.cut(); err != nil {
		fault.Msg += "; " + err.Error()
	}
	return fault
}

// keptForDEL is the part of a DEL's time in which it does without an agent that hangs, and calls another IPAM plugin.
func keptForDEL(timeout time.Duration) time.Duration { return min(timeout/3, 5*time.Second) }

// delByAgent has the agent delete, and removes the link that the agent does not. An error of the call, or a refusal, is
// as it came.
func (t *task) delByAgent(deadline time.Time) error {
	result, err := t.agent.Delete(deadline, t.attachment(), t.began.boot)
	switch {
	case refusedForGood(err):
		return t.remove()
	case err != nil:
		return err
	case result.Spared > 0:
		t.later = true
		return nil // a later ADD made the endpoint and the link, and they stay
	case result.Deleted > 0 && result.Errors == 0:
		return nil // the agent answers when the link is gone
	}
	return t.remove() // the agent knew nothing of it, or has on record what it could not do
}

// delWithoutAgent cuts the container off, and leaves the rest to the agent by a record. An agent that comes up
// meanwhile does it at once: it has worked off the records before it answers, so it may miss this one.
func (t *task) delWithoutAgent(record func() error) error {
	index, err := t.cut()
	if err != nil {
		return t.retry("take down the interface", err)
	}
	if err := record(); err != nil {
		return t.retry("record the deletion for the agent, which does not answer", err)
	}
	return t.removeIndex(index)
}

// record leaves a record unless an agent answers meanwhile.
func (t *task) record() error {
	w, err := deletequeue.BeginUntil(t.deletions(), t.deadline)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := t.delByAgent(t.deadline); err == nil || !unanswered(err) {
		return err
	}
	return w.Put(t.deletion())
}

// recordUnasked leaves a record for an agent that hangs. If it has heard of the deletion, doing it twice is harmless.
func (t *task) recordUnasked() error {
	w, err := deletequeue.BeginUntil(t.deletions(), t.deadline)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Put(t.deletion())
}

func (t *task) deletions() string { return filepath.Join(t.Config.StateDir, "deletions") }

func (t *task) deletion() deletequeue.Record {
	return deletequeue.Record{
		ContainerID: t.ContainerID, IfName: t.IfName, Network: t.Config.Name, Began: t.began.boot.Nanoseconds(),
	}
}

// remove cuts and deletes the host end, if it is there.
func (t *task) remove() error {
	index, err := t.cut()
	if err != nil {
		return t.retry("take down the interface", err)
	}
	return t.removeIndex(index)
}

// cut takes the host end down: from then on no packet passes. The index is 0 when there is none, or only that of a later
// life of the attachment.
func (t *task) cut() (index int, err error) {
	conn, err := rtnl.Dial()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	var host rtnl.Link
	err = conn.Do(rtnl.LinkByName(v1.HostInterfaceName(t.ContainerID, t.IfName), &host))
	if err == nil && bornAfter(host, t.began.boot) {
		t.later = true
		return 0, nil
	}
	if err == nil {
		err = conn.Do(rtnl.LinkDown(host.Index))
	}
	if errors.Is(err, unix.ENODEV) {
		return 0, nil
	}
	return host.Index, err
}

func (t *task) removeIndex(index int) error {
	if index == 0 {
		return nil
	}
	conn, err := rtnl.Dial()
	if err == nil {
		defer conn.Close()
		err = conn.Do(rtnl.DelLink(index))
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return t.retry("remove the interface", err)
	}
	return nil
}

// retry is a failure of DEL, all of which are worth another try.
func (t *task) retry(doing string, err error) *spec.Error {
	fault := kernelFault(fmt.Sprintf("%s of %s:%s", doing, clip(t.ContainerID), t.IfName), err)
	fault.Code = spec.TryAgain
	return fault
}
