package store

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func (e *etcd) grant(ctx context.Context, ttl time.Duration) (int64, time.Duration, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return 0, 0, err
	}
	answer, err := c.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, 0, e.fault(err)
	}
	return int64(answer.ID), time.Duration(answer.TTL) * time.Second, nil
}

func (e *etcd) renew(ctx context.Context, id int64) (time.Duration, error) {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return 0, err
	}
	asked := e.horizon.now()
	answer, err := e.renewals.renew(ctx, c, id)
	if err != nil {
		return 0, e.fault(err)
	}
	if answer.TTL <= 0 {
		return 0, ErrLeaseLost
	}
	return time.Duration(answer.TTL) * time.Second, e.probe(ctx, asked, answer.Header)
}

func (e *etcd) revoke(ctx context.Context, id int64) error {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return err
	}
	_, err = c.Revoke(ctx, clientv3.LeaseID(id))
	return e.fault(err)
}

func (e *etcd) leave(id int64) { e.renewals.end(id) }
