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
	ttl, err := e.renewals.renew(ctx, c, id)
	if err != nil {
		return 0, e.fault(err)
	}
	if ttl <= 0 {
		e.renewals.end(id)
		return 0, ErrLeaseLost
	}
	return time.Duration(ttl) * time.Second, nil
}

func (e *etcd) revoke(ctx context.Context, id int64) error {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return err
	}
	e.renewals.end(id)
	_, err = c.Revoke(ctx, clientv3.LeaseID(id))
	return e.fault(err)
}
