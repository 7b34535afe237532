package multipool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
)

// connect makes sure that the store knows this node, that this agent is the node's only one, and that the node's blocks are what the
// store says. Nothing is claimed before.
func (c *Controller) connect(ctx context.Context) error {
	if c.self.connected {
		return c.self.cloned
	}
	if c.isAnotherMachine(c.checkpoint.Machine) {
		return c.leaveMachine()
	}
	if err := c.readInfo(ctx); err != nil {
		return err
	}
	if err := c.register(ctx); err != nil {
		return err
	}
	if err := c.beginSession(ctx); err != nil {
		return err
	}
	if err := c.compareNodes(ctx); err != nil {
		return err
	}
	if err := c.compareBlocks(ctx); err != nil {
		return err
	}
	c.dirty = c.dirty || c.rebooted
	c.self.connected, c.rebooted = true, false
	return nil
}

// voidBlocks forgets what the checkpoint says of blocks: after a boot nothing of them is in use, and a store that has gone back may still
// have a claim that was over, while another node has the block. A block with a reservation is claimed anew.
func (c *Controller) voidBlocks(why string) error {
	if !c.rebooted {
		return nil
	}
	for i, b := range c.checkpoint.Blocks {
		if b.State != blockOwned {
			continue
		}
		if c.addresses.Remove(b.Pool, b.CIDR) == nil {
			c.checkpoint.Blocks[i].State = blockReleased
		} else {
			c.checkpoint.Blocks[i].State, c.checkpoint.Blocks[i].Claim = blockReclaiming, rand.Text()
		}
	}
	c.log.Info("the node claims its blocks anew", "reason", why)
	return c.save()
}

// readInfo reads the record of the cluster, or creates it, and begins a recovery when the store has gone back.
func (c *Controller) readInfo(ctx context.Context) error {
	r, position, err := c.ensureInfo(ctx)
	if errors.Is(err, cluster.ErrExists) || errors.Is(err, cluster.ErrConflict) { // another node did it at the same time
		r, position, err = c.ensureInfo(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the record of the cluster: %w", err)
	}
	c.positionRead()
	ck := &c.checkpoint
	c.self.info = r
	if ck.Cluster != "" && (r.Recovery != nil || r.Epoch != ck.Epoch || r.ID != ck.Cluster) {
		if err := c.voidBlocks("the cluster's store has gone back before this boot"); err != nil {
			return err
		}
	}
	if ck.Cluster != r.ID || ck.Epoch != r.Epoch || ck.Position != position {
		ck.Cluster, ck.Epoch, ck.Position = r.ID, r.Epoch, position
		return c.save()
	}
	return nil
}

func (c *Controller) ensureInfo(ctx context.Context) (r cluster.Record, position cluster.Position, err error) {
	r, position, err = c.backend.Info.Get(ctx)
	ck := c.checkpoint
	switch {
	case errors.Is(err, cluster.ErrNotFound) && ck.Cluster == "":
		r, err = c.backend.Info.Put(ctx, cluster.Record{ID: rand.Text()})
	case errors.Is(err, cluster.ErrNotFound):
		r, err = c.backend.Info.Put(ctx, cluster.Record{ID: rand.Text(), Epoch: ck.Epoch + 1, Recovery: c.newRecovery("the record of the cluster is gone")})
	case err == nil && ck.Cluster != "" && c.wentBack(r, position):
		r, err = c.beginRecovery(ctx, r, "the store is of an earlier time than node "+c.cfg.Node+" has seen")
	}
	return r, position, err
}

// positionInterval is the time between two looks at the store's position, in Config.Interval: a watch does not always notice that the
// store is another one.
const positionInterval = 3

// checkPosition finds out now and then whether the store has gone back.
func (c *Controller) checkPosition(ctx context.Context) error {
	if c.clock() < c.nextPosition {
		return nil
	}
	r, position, err := c.backend.Info.Get(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && (r.ID != c.self.info.ID || r.Epoch != c.self.info.Epoch || c.wentBack(r, position)) {
		c.self.connected = false
		return c.connect(ctx)
	}
	if err == nil {
		c.positionRead()
	}
	return err
}

// positionRead has the position be read again after a while.
func (c *Controller) positionRead() {
	c.nextPosition = c.clock() + positionInterval*c.cfg.Interval/2 + time.Duration(c.rng.Int64N(int64(positionInterval*c.cfg.Interval)))
}

// wentBack reports whether the store is of an earlier time than the node has seen, and nobody has noticed.
func (c *Controller) wentBack(r cluster.Record, p cluster.Position) bool {
	ck := c.checkpoint
	if r.Epoch > ck.Epoch {
		return false // somebody has noticed
	}
	return r.ID != ck.Cluster || r.Epoch < ck.Epoch || ck.Position != (cluster.Position{}) && p.Before(ck.Position)
}

// register makes sure that the store has the node's record.
func (c *Controller) register(ctx context.Context) error {
	ck := &c.checkpoint
	n, err := c.backend.Nodes.Get(ctx, ck.Node)
	if errors.Is(err, cluster.ErrNotFound) && ck.Registered {
		if slices.Contains(c.self.info.Removed, ck.Node.Key) {
			return c.becomeAnother("an administrator has deleted the node")
		}
		err := errors.Join(c.recordLost(ctx, "the record of node "+ck.Node.String()), c.voidBlocks("the node's record is gone"))
		if err != nil {
			return err
		}
	}
	if errors.Is(err, cluster.ErrNotFound) {
		n, err = c.backend.Nodes.Create(ctx, cluster.Node{ID: ck.Node, State: cluster.NodeActive, MachineID: c.machine, Created: time.Now().UTC()})
		if errors.Is(err, cluster.ErrExists) { // an answer that was lost: nobody else has the key
			n, err = c.backend.Nodes.Get(ctx, ck.Node)
		}
	}
	if err == nil && c.isAnotherMachine(n.MachineID) { // the checkpoint was lost
		return c.leaveMachine()
	}
	if err == nil && n.State == cluster.NodeReleasing {
		return c.answerDeletion(ctx, n)
	}
	if err == nil && !n.Deleting && (n.Reporter != "" || !c.rebooted && n.MachineID != c.machine) {
		n.Reporter = ""
		if !c.rebooted { // so it is the machine that it was
			n.MachineID = c.machine
		}
		n, err = c.backend.Nodes.Update(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("register node %s: %w", ck.Node, err)
	}
	c.self.record = n
	if !ck.Registered {
		c.compareUnknown = true // the checkpoint may have been lost
		ck.Registered = true
		return c.save()
	}
	return nil
}

// answerDeletion agrees to the deletion of this node when it has no block, and else objects. One who says that the machine is off does not
// ask, and may be deleting its blocks by now: then the node goes on as another.
func (c *Controller) answerDeletion(ctx context.Context, n cluster.Node) error {
	switch {
	case n.MachineOff:
		return c.becomeAnother("an administrator has deleted the node and said that its machine is off")
	case n.Agreed || n.Deleting:
		return ErrReleasing
	case len(c.checkpoint.Blocks) == 0:
		n.Agreed = true
	default:
		n.State, n.Objection = cluster.NodeActive, objection(c.addresses.reservations())
	}
	if _, err := c.backend.Nodes.Update(ctx, n); err != nil {
		return fmt.Errorf("answer to the deletion of node %s: %w", n.ID, err)
	}
	return ErrReleasing // the next round reads the record again
}

// isAnotherMachine reports whether the machine has booted with another machine-id than this one. "" is that none is known.
func (c *Controller) isAnotherMachine(was string) bool {
	return c.rebooted && was != "" && c.machine != "" && was != c.machine
}

// leaveMachine goes on as another node, and leaves the node of the checkpoint to the machine that it is of.
func (c *Controller) leaveMachine() error {
	c.leaveBlocks()
	c.checkpoint.Machine = c.machine
	return c.becomeAnother("its disk was copied from a machine with another machine-id, or moved, or the machine-id has changed")
}

// leaveBlocks forgets the blocks of which nothing is in use, whatever is to become of them: the machine whose disk was copied does that.
func (c *Controller) leaveBlocks() {
	for _, b := range slices.Clone(c.checkpoint.Blocks) {
		if c.addresses.Remove(b.Pool, b.CIDR) == nil {
			c.checkpoint.drop(b.CIDR)
			delete(c.deletions, b.CIDR)
		}
	}
}

// becomeAnother goes on as a new incarnation of the node. Blocks with addresses in use are claimed for it.
func (c *Controller) becomeAnother(why string) error {
	was := c.checkpoint.Node
	for i, b := range c.checkpoint.Blocks {
		c.addresses.Drain(b.Pool, b.CIDR)
		if b.State == blockOwned { // by the incarnation that is gone
			c.checkpoint.Blocks[i].State = blockReclaiming
		}
	}
	if err := c.checkpoint.newIncarnation(c.cfg.Dir); err != nil {
		return fmt.Errorf("give the node another key: %w", err)
	}
	c.log.Error("the node goes on as a new one", "reason", why, "was", was.String(), "node", c.checkpoint.Node.String())
	c.self = self{}
	return fmt.Errorf("%s: it goes on as %s", why, c.checkpoint.Node)
}

// beginSession writes this agent's session, unless another agent has written one meanwhile.
func (c *Controller) beginSession(ctx context.Context) error {
	ck := &c.checkpoint
	now, err := c.backend.Sessions.Get(ctx, ck.Node)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return fmt.Errorf("read the session of node %s: %w", ck.Node, err)
	}
	own := c.self.session.ID
	switch {
	case err != nil: // none yet, or the store has lost it
		now = cluster.Session{}
	case now.Contested != "":
		return c.fence(fmt.Sprintf("sessions %s and %s contest it", now.ID, now.Contested))
	case own != "" && now.ID == own:
		c.self.session = now
		c.unfence()
		return nil
	case !slices.Contains(ck.Sessions, now.ID) && len(ck.Sessions) > 0:
		contested := now
		contested.Contested = ck.Sessions[len(ck.Sessions)-1]
		_, err := c.backend.Sessions.Put(ctx, contested)
		return errors.Join(c.fence(fmt.Sprintf("session %s has replaced its own", now.ID)), err)
	}
	before := slices.ContainsFunc(ck.Sessions, func(id string) bool { return id != c.proposed })
	takesOver := before && (c.rebooted || now.ID != "" && now.Boot != c.boot)
	if !slices.Contains(ck.Sessions, c.proposed) || c.proposed == own {
		c.proposed = rand.Text()
		ck.addSession(c.proposed)
	}
	next := cluster.Session{Node: ck.Node, ID: c.proposed, Boot: c.boot, Contact: time.Now().UTC(), Confirmed: now.Confirmed, Version: now.Version}
	if err := c.save(); err != nil {
		return err
	}
	written, err := c.backend.Sessions.Put(ctx, next)
	if err != nil {
		return fmt.Errorf("begin the session of node %s: %w", ck.Node, err)
	}
	if takesOver {
		if written, err = c.awaitContest(ctx, written); err != nil {
			return err
		}
	}
	c.self.session = written
	c.unfence()
	return nil
}

// awaitContest gives an agent that runs on another machine with a copy of this disk the time to see that its session was replaced. One
// that is cut off does not see it.
func (c *Controller) awaitContest(ctx context.Context, written cluster.Session) (now cluster.Session, err error) {
	for end := time.Now().Add(c.cfg.ContestTime); ; {
		if err := sleep(ctx, min(c.cfg.SearchTime, c.cfg.ContestTime)/4); err != nil {
			return now, err
		}
		now, err = c.backend.Sessions.Get(ctx, written.Node)
		switch {
		case err != nil:
			return now, fmt.Errorf("read the session of node %s: %w", written.Node, err)
		case now.Contested != "":
			return now, c.fence(fmt.Sprintf("sessions %s and %s contest it", now.ID, now.Contested))
		case now.ID != written.ID:
			return now, fault.New(fault.Unavailable, "another session has this node's name")
		case time.Now().After(end):
			return now, nil
		}
	}
}

// fence ends that this agent gives out addresses: another machine has its key and may give out the same ones.
func (c *Controller) fence(why string) error {
	err := fmt.Errorf("%w, %s: %s; a disk was copied: remove %s in %s on the copy and restart its agent, then run porin node reset %s",
		ErrCloned, c.checkpoint.Node, why, keyFile, c.cfg.Dir, c.checkpoint.Node)
	if c.self.cloned == nil {
		c.log.Error("this node gives out no address", "error", err)
	}
	c.self.cloned = err
	c.addresses.Suspend(err)
	if c.checkpoint.Contested != why {
		c.checkpoint.Contested = why
		return errors.Join(err, c.save())
	}
	return err
}

// unfence ends what fence began.
func (c *Controller) unfence() {
	if c.self.cloned != nil {
		c.log.Info("this node gives out addresses again: nobody contests its key")
	}
	c.self.cloned = nil
	c.dirty = c.dirty || c.checkpoint.Contested != ""
	c.checkpoint.Contested = ""
	c.addresses.Suspend(nil)
}

const machineIDFile = "/etc/machine-id"

// machineID is "" when the machine has none that outlives a boot. It is a hash, because the ID itself is not for everybody (machine-id(5)).
func machineID() string {
	var fs unix.Statfs_t
	if unix.Statfs(machineIDFile, &fs) != nil || fs.Type == unix.TMPFS_MAGIC { // systemd makes another one at each boot
		return ""
	}
	text, err := os.ReadFile(machineIDFile)
	if err != nil || len(text) < 32 { // 32 digits, but for "uninitialized" or nothing
		return ""
	}
	sum := sha256.Sum256(append([]byte("porin:"), text...))
	return hex.EncodeToString(sum[:8])
}
