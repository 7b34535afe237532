package nl

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/vishvananda/netlink/nl"

	"porin.dev/porin/internal/netns"
)

// watchBuffer is room for the notifications of a burst.
const watchBuffer = 4 << 20

// WatchIn is [Watch] in another network namespace.
func WatchIn(ctx context.Context, namespace *os.File, protocol int, groups ...uint) (<-chan syscall.NetlinkMessage, error) {
	return netns.Call(int(namespace.Fd()), func() (<-chan syscall.NetlinkMessage, error) { return Watch(ctx, protocol, groups...) })
}

// Watch returns what the kernel tells the multicast groups of the protocol, in the network namespace of the calling
// thread, from now on. The channel is closed when ctx ends, and when notifications were lost. It must be read to its
// end.
func Watch(ctx context.Context, protocol int, groups ...uint) (<-chan syscall.NetlinkMessage, error) {
	socket, err := nl.Subscribe(protocol, groups...)
	if err != nil {
		return nil, fmt.Errorf("subscribe to netlink notifications: %w", err)
	}
	_ = socket.SetReceiveBufferSize(watchBuffer, true) // without the right to, the default stays
	notifications := make(chan syscall.NetlinkMessage)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, socket.Close) // which wakes Receive
	go func() {
		defer close(notifications)
		defer cancel()
		for {
			messages, from, err := socket.Receive()
			if err != nil {
				return
			}
			if from.Pid != nl.PidKernel {
				continue
			}
			for _, m := range messages {
				notifications <- m
			}
		}
	}()
	return notifications, nil
}
