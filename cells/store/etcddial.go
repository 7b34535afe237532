package store

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
)

// dialer makes etcd's client when it is first needed: with a user, that takes an answer of etcd, which may be away when
// the agent starts. The client then finds members again by itself.
type dialer struct {
	cfg    EtcdConfig
	tls    *tls.Config
	making chan struct{} // has one element while somebody makes the client, or looks for it
	made   *clientv3.Client
}

func newDialer(cfg EtcdConfig) dialer { return dialer{cfg: cfg, making: make(chan struct{}, 1)} }

// start reads the files, so that a wrong path is said at once.
func (d *dialer) start() (err error) {
	if _, err = d.cfg.password(); err == nil {
		d.tls, err = d.cfg.tls()
	}
	return err
}

func (d *dialer) stop() error {
	if d.made == nil {
		return nil
	}
	return d.made.Close()
}

// client returns the client, or makes it.
func (d *dialer) client(ctx context.Context) (*clientv3.Client, error) {
	select {
	case d.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-d.making }()
	if d.made != nil {
		return d.made, nil
	}
	made, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	d.made = made
	return made, nil
}

// dial tries as long as ctx lasts. The client is not bound to ctx any more when it is made.
func (d *dialer) dial(ctx context.Context) (*clientv3.Client, error) {
	password, err := d.cfg.password()
	if err != nil {
		return nil, err
	}
	patience := 5 * time.Second // a watch has no deadline, and tries again
	if deadline, ok := ctx.Deadline(); ok {
		patience = max(time.Millisecond, time.Until(deadline))
	}
	life, cancel := context.WithCancel(context.Background())
	unhook := context.AfterFunc(ctx, cancel)
	made, err := clientv3.New(clientv3.Config{
		Context: life, Endpoints: d.cfg.Endpoints, TLS: d.tls, Username: d.cfg.Username, Password: password,
		DialTimeout:       patience,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, // a member that is silent is left
		// Without this a member that comes back after long is looked for up to two minutes later.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		})},
		Logger: zap.NewNop(), // what it has to say is in its errors
	})
	if inTime := unhook(); err == nil && !inTime {
		err = errors.Join(ctx.Err(), made.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return made, nil
}
