package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// leaseRecord is a lease in the file. Its end is by the boot clock, and so survives a restart of the agent.
type leaseRecord struct {
	TTL time.Duration `json:"ttl"`
	End time.Duration `json:"end"`
}

// over also holds for a lease of another boot, whose clock was further. One whose clock was not ends within its time.
func (r leaseRecord) over(now time.Duration) bool { return now >= r.End || r.End-now > r.TTL }

func leaseKey(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func leaseOf(tx *bbolt.Tx, id int64) (record leaseRecord, there bool) {
	text := tx.Bucket(leasesBucket).Get(leaseKey(id))
	return record, text != nil && json.Unmarshal(text, &record) == nil
}

func (b *batch) putLease(id int64, ttl time.Duration) error {
	text, err := json.Marshal(leaseRecord{TTL: ttl, End: b.now + ttl})
	if err != nil {
		return fmt.Errorf("encode a lease: %w", err)
	}
	b.changed = true
	return b.tx.Bucket(leasesBucket).Put(leaseKey(id), text)
}

func (e *embedded) grant(ctx context.Context, ttl time.Duration) (id int64, _ time.Duration, err error) {
	err = e.write(ctx, func(b *batch) error {
		number, err := b.tx.Bucket(leasesBucket).NextSequence()
		if err != nil {
			return err
		}
		id = int64(number)
		return b.putLease(id, ttl)
	})
	e.look()
	return id, ttl, err
}

func (e *embedded) renew(ctx context.Context, id int64) (ttl time.Duration, err error) {
	err = e.write(ctx, func(b *batch) error {
		record, there := leaseOf(b.tx, id)
		if !there || record.over(b.now) {
			return ErrLeaseLost
		}
		ttl = record.TTL
		return b.putLease(id, ttl)
	})
	return ttl, err
}

func (*embedded) leave(int64) {}

func (e *embedded) revoke(ctx context.Context, id int64) error {
	return e.write(ctx, func(b *batch) error {
		if b.tx.Bucket(leasesBucket).Get(leaseKey(id)) == nil {
			return ErrLeaseLost
		}
		return b.end(map[int64]bool{id: true})
	})
}

// end removes leases and the entries under them.
func (b *batch) end(leases map[int64]bool) error {
	var gone []string // first, for deleting moves what is iterated over
	err := b.tx.Bucket(entriesBucket).ForEach(func(key, value []byte) error {
		if leases[parseStored(value).lease] {
			gone = append(gone, string(key))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range gone {
		if err := b.delete(key); err != nil {
			return err
		}
	}
	for id := range leases {
		b.changed = true
		if err := b.tx.Bucket(leasesBucket).Delete(leaseKey(id)); err != nil {
			return err
		}
	}
	return nil
}

// look lets endLeases look again.
func (e *embedded) look() {
	select {
	case e.poke <- struct{}{}:
	default:
	}
}

// endLeases ends leases when they are over, also those of an agent before this one.
func (e *embedded) endLeases(ctx context.Context) {
	const glance = 250 * time.Millisecond // the least time between two looks
	for {
		wait, err := e.endOver(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("leases that are over could not be ended", "error", err, "retry", time.Second)
			wait = time.Second
		}
		timer := time.NewTimer(max(wait, glance))
		select {
		case <-timer.C:
		case <-e.poke:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// endOver returns when the next one may be over. It looks before it writes: mostly there is nothing to do.
func (e *embedded) endOver(ctx context.Context) (wait time.Duration, err error) {
	over, wait, err := e.over()
	if err != nil || len(over) == 0 {
		return wait, err
	}
	return wait, e.write(ctx, func(b *batch) error {
		still := map[int64]bool{}
		for _, id := range over {
			if record, there := leaseOf(b.tx, id); !there || record.over(b.now) {
				still[id] = true
			}
		}
		return b.end(still)
	})
}

func (e *embedded) over() (over []int64, wait time.Duration, err error) {
	now, wait := e.boot(), time.Minute
	err = e.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(leasesBucket).ForEach(func(key, _ []byte) error {
			id := int64(binary.BigEndian.Uint64(key))
			record, there := leaseOf(tx, id)
			if !there || record.over(now) {
				over = append(over, id)
			} else {
				wait = min(wait, record.End-now)
			}
			return nil
		})
	})
	return over, wait, err
}
