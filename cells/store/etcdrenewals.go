package store

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// renewals has a stream for each lease that is kept. A stream is made with a user's password, which costs etcd much, and
// so is used for as long as it lasts. It ends with the client, too.
//
// The client's own KeepAlive counts a lease's time from when the answer came, which may be long after etcd does, and its
// KeepAliveOnce asks again without a pause.
type renewals struct {
	mu      sync.Mutex // guards streams
	streams map[int64]renewal
}

type renewal struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// renew asks once. The answer has the seconds that the lease has from then on; 0 is that it is over. One lease is renewed
// by one goroutine.
func (r *renewals) renew(ctx context.Context, c *clientv3.Client, id int64) (_ *etcdserverpb.LeaseKeepAliveResponse, err error) {
	defer func() {
		if err != nil {
			r.end(id)
		}
	}()
	one, err := r.open(ctx, c, id)
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	unhook := context.AfterFunc(ctx, one.cancel) // an answer that comes too late is not taken for the next one's
	defer unhook()
	_ = one.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: id}) // Recv says why when it has failed
	answer, err := one.stream.Recv()
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	return answer, ctx.Err()
}

// open returns the lease's stream.
func (r *renewals) open(ctx context.Context, c *clientv3.Client, id int64) (renewal, error) {
	r.mu.Lock()
	one, there := r.streams[id]
	r.mu.Unlock()
	if there {
		return one, nil
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, cancel)
	defer unhook()
	stream, err := etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(life, grpc.WaitForReady(true))
	if err != nil {
		cancel()
		return renewal{}, err
	}
	one = renewal{stream, cancel}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.streams[id] = one
	return one, nil
}

// end ends the lease's stream, if there is one.
func (r *renewals) end(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, there := r.streams[id]; there {
		one.cancel()
		delete(r.streams, id)
	}
}
