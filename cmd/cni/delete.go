package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/deletionrecords"
	"porin.dev/porin/internal/rtnl"
)

// delete has the agent delete, or does it without one: it cuts the host end, so that the stack passes no packet any
// more, leaves a record for the agent, and removes the link. Where the state directory is full or read-only there is no
// record: an agent that starts and does not find the link takes the endpoint for deleted. It fails only when another
// try can help.
func (c *call) delete() error {
	err := c.askToDelete(c.deadline.Add(-reservedForDelete(c.deadline.Sub(c.began.wall))))
	if err == nil || isAgentError(err) {
		return err
	}
	// A container that is to be gone sends nothing more, whatever comes of the rest.
	if err := c.requestHostEnd(rtnl.LinkDown); err != nil {
		return c.retry("take down the interface", err)
	}
	hangs := errors.Is(err, errTimeout)
	answered, recordErr := c.record(hangs)
	switch {
	case isAgentError(recordErr):
		return recordErr
	case recordErr != nil && (hangs || errors.Is(recordErr, unix.EWOULDBLOCK)): // an agent is there, or holds the lock
		return c.retry("record the deletion for the agent, which does not answer", recordErr)
	case answered: // and what is there now is what the agent has left, of a later ADD
		return nil
	}
	if err := c.requestHostEnd(rtnl.DelLink); err != nil {
		return c.retry("remove the interface", err)
	}
	if recordErr != nil { // an agent that has started meanwhile may have seen the link
		if err := c.askToDelete(c.deadline); isAgentError(err) {
			return err
		}
	}
	return nil
}

// reservedForDelete is the part of a DEL's time in which it does without an agent that hangs.
func reservedForDelete(timeout time.Duration) time.Duration { return min(timeout/3, 5*time.Second) }

func (c *call) askToDelete(deadline time.Time) error {
	_, err := c.ask(deadline)
	return err
}

// isAgentError reports whether the agent has answered with an error for the runtime.
func isAgentError(err error) bool {
	_, printed := errors.AsType[*agentError](err)
	return printed
}

// record leaves a record unless the agent answers by now: while the record's lock is held it works off none, and an
// agent that came up before that does not look at the folder again at once. An agent that hangs is not asked again; if
// it has heard of the deletion, doing it twice is harmless.
func (c *call) record(hangs bool) (answered bool, err error) {
	writer, err := deletionrecords.BeginUntil(filepath.Join(c.config.StateDir, "deletions"), c.deadline)
	if err != nil {
		return false, err
	}
	defer writer.Close()
	if !hangs {
		if err := c.askToDelete(c.deadline); err == nil || isAgentError(err) {
			return true, err
		}
	}
	boot, _ := boottime.ID() // without it the agent takes the time for one of its own boot
	record := deletionrecords.Record{ContainerID: c.containerID, IfName: c.ifname, Network: c.config.Name, Began: c.began.boot.Nanoseconds(), Boot: boot}
	if c.config.IPAM.Type != "" {
		record.IPAM, record.Config, record.Args, record.NetNS = c.config.IPAM.Type, string(c.raw), c.args, c.netns
	}
	return false, writer.Put(record)
}

// requestHostEnd sends the request for the attachment's host end, unless there is none, or only a later ADD's:
// the agent may have come and gone since the last look.
func (c *call) requestHostEnd(request func(index int) rtnl.Request) error {
	conn, err := rtnl.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	var host rtnl.Link
	err = conn.Do(rtnl.LinkByName(v1.HostInterfaceName(c.containerID, c.ifname), &host))
	if err == nil && !beganAfter(host.Alias, c.began.boot) {
		err = conn.Do(request(host.Index))
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// beganAfter reads the alias that the agent writes on a host end: "containerID:ifname began=NANOSECONDS". It reports
// whether the link is of an ADD that began later; not when the alias does not say.
func beganAfter(alias string, began time.Duration) bool {
	last := alias[strings.LastIndexByte(alias, ' ')+1:]
	text, ok := strings.CutPrefix(last, "began=")
	if !ok {
		return false
	}
	linkBegan, err := strconv.ParseInt(text, 10, 64)
	return err == nil && time.Duration(linkBegan) > began
}

// retry is a failure of DEL: each is worth another try.
func (c *call) retry(doing string, err error) error {
	f := &failure{Code: codeTryAgain, Msg: fmt.Sprintf("%s of %s: %v", doing, c.subject(), err)}
	if errors.Is(err, unix.EPERM) {
		f.Details = "run the container runtime as root, with CAP_NET_ADMIN"
	}
	return f
}
