package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd is a store in an etcd, under a prefix of its own. Revisions are etcd's.
type etcd struct {
	cfg      EtcdConfig
	dialer   dialer
	progress *progress
}

// pageSize is how many entries of a list one answer has.
const pageSize = 500

func newEtcd(cfg EtcdConfig) *etcd {
	return &etcd{cfg: cfg, dialer: newDialer(cfg), progress: newProgress()}
}

func (e *etcd) location() string { return "etcd at " + strings.Join(e.cfg.Endpoints, ", ") }

func (e *etcd) start() error { return e.dialer.start() }
func (e *etcd) stop() error  { return e.dialer.stop() }

func (e *etcd) get(ctx context.Context, key string) (Entry, error) {
	answer, err := e.read(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	if len(answer.Kvs) == 0 {
		return Entry{}, ErrNotFound
	}
	return e.entry(answer.Kvs[0]), nil
}

func (e *etcd) page(ctx context.Context, prefix, after string, limit int) (entries []Entry, more bool, err error) {
	entries, answer, err := e.readPage(ctx, prefix, after, limit, 0)
	if err != nil {
		return nil, false, err
	}
	return entries, answer.More, nil
}

func (e *etcd) list(ctx context.Context, prefix, after string, at int64) (entries []Entry, more bool, revision int64, err error) {
	entries, answer, err := e.readPage(ctx, prefix, after, pageSize, at)
	if err != nil {
		return nil, false, 0, err
	}
	return entries, answer.More, cmp.Or(at, answer.Header.Revision), nil
}

func (e *etcd) position(ctx context.Context) (Position, error) {
	answer, err := e.read(ctx, probeKey, clientv3.WithKeysOnly())
	if err != nil {
		return Position{}, err
	}
	h := answer.Header
	return Position{Store: strconv.FormatUint(h.ClusterId, 16), Term: h.RaftTerm, Revision: uint64(h.Revision)}, nil
}

func (e *etcd) create(ctx context.Context, key string, value []byte) error {
	absent := clientv3.Compare(clientv3.CreateRevision(e.cfg.Prefix+key), "=", 0)
	answer, err := e.change(ctx, absent, e.put(key, value))
	if err == nil && !answer.Succeeded {
		err = ErrExists
	}
	return err
}

func (e *etcd) replace(ctx context.Context, key string, was, value []byte) error {
	if bytes.Equal(was, value) { // equal content is no write, as on Kubernetes
		entry, err := e.get(ctx, key)
		if errors.Is(err, ErrNotFound) || err == nil && !bytes.Equal(entry.Value, was) {
			return ErrConflict
		}
		return err
	}
	answer, err := e.change(ctx, e.valueIs(key, was), e.put(key, value))
	if err == nil && !answer.Succeeded {
		err = ErrConflict
	}
	return err
}

// remove looks in the same transaction whether the entry is gone, which is a success.
func (e *etcd) remove(ctx context.Context, key string, was []byte) error {
	answer, err := e.change(ctx, e.valueIs(key, was), clientv3.OpDelete(e.cfg.Prefix+key), clientv3.OpGet(e.cfg.Prefix+key, clientv3.WithKeysOnly()))
	if err != nil || answer.Succeeded || len(answer.Responses[0].GetResponseRange().Kvs) == 0 {
		return err
	}
	return ErrConflict
}

// read reads with a quorum.
func (e *etcd) read(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return nil, e.fault(err)
	}
	before := e.progress.now()
	answer, err := c.Get(ctx, e.cfg.Prefix+key, opts...)
	if err != nil {
		return nil, e.fault(err)
	}
	e.progress.observe(before, answer.Header)
	return answer, nil
}

// readPage reads at the revision, or at the latest one when that is 0.
func (e *etcd) readPage(ctx context.Context, prefix, after string, limit int, revision int64) ([]Entry, *clientv3.GetResponse, error) {
	end := clientv3.GetPrefixRangeEnd(e.cfg.Prefix + prefix)
	answer, err := e.read(ctx, max(prefix, after+"\x00"), clientv3.WithRange(end), clientv3.WithLimit(int64(limit)), clientv3.WithRev(revision))
	if err != nil {
		return nil, nil, err
	}
	entries := make([]Entry, 0, len(answer.Kvs))
	for _, kv := range answer.Kvs {
		entries = append(entries, e.entry(kv))
	}
	return entries, answer, nil
}

// change does one thing if the condition holds, and else the other.
func (e *etcd) change(ctx context.Context, condition clientv3.Cmp, do clientv3.Op, otherwise ...clientv3.Op) (*clientv3.TxnResponse, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return nil, e.fault(err)
	}
	before := e.progress.now()
	answer, err := c.Txn(ctx).If(condition).Then(do).Else(otherwise...).Commit()
	if err != nil {
		return nil, e.fault(err)
	}
	e.progress.observe(before, answer.Header)
	return answer, nil
}

func (e *etcd) valueIs(key string, value []byte) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(e.cfg.Prefix+key), "=", string(value))
}

func (e *etcd) put(key string, value []byte) clientv3.Op {
	return clientv3.OpPut(e.cfg.Prefix+key, string(value))
}

func (e *etcd) entry(kv *mvccpb.KeyValue) Entry {
	return Entry{strings.TrimPrefix(string(kv.Key), e.cfg.Prefix), kv.Value}
}

// fault says what an error of etcd's client means here. An error that is no clear answer is about a store that is away; the end
// of the context stays what it is.
func (e *etcd) fault(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev), errors.Is(err, errGone):
		return errGone
	}
	return &unavailable{e.location(), err}
}
