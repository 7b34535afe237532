package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd is a store in an etcd, under a prefix of its own. Revisions are etcd's.
type etcd struct {
	cfg      EtcdConfig
	dialer   dialer
	horizon  *horizon
	renewals renewals
}

// pageSize is how many entries of a list one answer has.
const pageSize = 500

func newEtcd(cfg EtcdConfig) *etcd {
	return &etcd{cfg: cfg, dialer: newDialer(cfg), horizon: newHorizon(), renewals: renewals{streams: map[int64]renewal{}}}
}

func (e *etcd) where() string { return "etcd at " + strings.Join(e.cfg.Endpoints, ", ") }

func (e *etcd) start(context.Context) error { return e.dialer.start() }
func (e *etcd) stop() error                 { return e.dialer.stop() }

func (e *etcd) get(ctx context.Context, key string) (Entry, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return Entry{}, err
	}
	asked := e.horizon.now()
	answer, err := c.Get(ctx, e.cfg.Prefix+key)
	if err != nil {
		return Entry{}, e.fault(err)
	}
	e.horizon.saw(asked, answer.Header)
	if len(answer.Kvs) == 0 {
		return Entry{}, ErrNotFound
	}
	return e.entry(answer.Kvs[0]), nil
}

// list reads page by page at the revision of the first. Should that be compacted meanwhile, it begins anew.
func (e *etcd) list(ctx context.Context, prefix string) ([]Entry, int64, error) {
	for {
		entries, revision, err := e.pages(ctx, e.cfg.Prefix+prefix)
		if !errors.Is(err, errGone) {
			return entries, revision, err
		}
	}
}

func (e *etcd) pages(ctx context.Context, begin string) (entries []Entry, revision int64, err error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return nil, 0, err
	}
	end := clientv3.GetPrefixRangeEnd(begin)
	for {
		asked := e.horizon.now()
		answer, err := c.Get(ctx, begin, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, e.fault(err)
		}
		e.horizon.saw(asked, answer.Header)
		if revision == 0 {
			revision = answer.Header.Revision
		}
		for _, kv := range answer.Kvs {
			entries = append(entries, e.entry(kv))
		}
		if !answer.More {
			return entries, revision, nil
		}
		begin = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
}

func (e *etcd) create(ctx context.Context, key string, value []byte, lease int64) (int64, error) {
	absent := clientv3.Compare(clientv3.CreateRevision(e.cfg.Prefix+key), "=", 0)
	answer, err := e.change(ctx, absent, e.put(key, value, clientv3.WithLease(clientv3.LeaseID(lease))))
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, ErrExists
	}
	return answer.Header.Revision, nil
}

func (e *etcd) swap(ctx context.Context, key string, revision int64, value []byte, lease int64) (int64, error) {
	under := clientv3.WithIgnoreLease()
	if lease != 0 {
		under = clientv3.WithLease(clientv3.LeaseID(lease))
	}
	answer, err := e.change(ctx, e.unchanged(key, revision), e.put(key, value, under))
	if err != nil {
		return 0, err
	}
	if !answer.Succeeded {
		return 0, ErrConflict
	}
	return answer.Header.Revision, nil
}

// remove takes an entry that is gone for removed: when the revision is not as it should be, it looks in the same
// transaction.
func (e *etcd) remove(ctx context.Context, key string, revision int64) error {
	remove := clientv3.OpDelete(e.cfg.Prefix + key)
	if revision == 0 {
		_, err := e.change(ctx, clientv3.Compare(clientv3.CreateRevision(e.cfg.Prefix+key), ">", 0), remove)
		return err
	}
	answer, err := e.change(ctx, e.unchanged(key, revision), remove, clientv3.OpGet(e.cfg.Prefix+key, clientv3.WithKeysOnly()))
	if err != nil || answer.Succeeded || len(answer.Responses[0].GetResponseRange().Kvs) == 0 {
		return err
	}
	return ErrConflict
}

// change does what is to be done if the condition holds, or else what otherwise says.
func (e *etcd) change(ctx context.Context, condition clientv3.Cmp, do clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return nil, err
	}
	asked := e.horizon.now()
	answer, err := c.Txn(ctx).If(condition).Then(do).Else(otherwise...).Commit()
	if err != nil {
		return nil, e.fault(err)
	}
	e.horizon.saw(asked, answer.Header)
	return answer, nil
}

func (e *etcd) unchanged(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(e.cfg.Prefix+key), "=", revision)
}

func (e *etcd) put(key string, value []byte, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpPut(e.cfg.Prefix+key, string(value), opts...)
}

func (e *etcd) entry(kv *mvccpb.KeyValue) Entry {
	return Entry{strings.TrimPrefix(string(kv.Key), e.cfg.Prefix), kv.Value, kv.ModRevision}
}

// fault says what an error of etcd's client means here. Those that are no clear answer are about a store that is away,
// with the cause; the end of the context stays what it is.
func (e *etcd) fault(err error) error {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return ErrLeaseLost
	case errors.Is(err, errBack):
		return errBack
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev), errors.Is(err, errGone):
		return errGone
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, e.where(), err)
}
