package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/store"
)

// What is sent: fifty records a second, to each of some agents.
const (
	fanoutAgents  = 250
	fanoutChanges = 50
	fanoutTime    = 10 * time.Second
)

// fanoutBytes are the sizes of records: of one endpoint, and of a group of 16.
var fanoutBytes = []int{330, 6000}

// measureFanout measures what etcd, in a process of its own, takes to tell agents of changes. docs/adr/0034 scales it to a cluster.
func measureFanout(ctx context.Context) (figures, error) {
	f := figures{}
	for _, size := range fanoutBytes {
		if err := fanoutOf(ctx, size, f); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func fanoutOf(ctx context.Context, size int, f figures) (err error) {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, end, err := etcdProcess(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	var received atomic.Int64
	var watching, watches sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer watches.Wait()
	defer cancel()
	for range fanoutAgents {
		s, err := openStore(ctx, dir)
		if err != nil {
			return err
		}
		events, err := s.Watch(ctx, "endpoints/")
		if err != nil {
			return err
		}
		watching.Add(1)
		watches.Go(func() {
			defer func() { _ = s.Stop(context.Background()) }()
			for event := range events {
				if event.Type == store.Resync && !event.More {
					watching.Done()
				}
				received.Add(1)
			}
		})
	}
	watching.Wait()
	before, err := processorTime(etcd)
	if err != nil {
		return err
	}
	received.Store(0)
	began := time.Now()
	writes, err := writeRecords(ctx, dir, size)
	if err != nil {
		return err
	}
	for received.Load() < int64(writes*fanoutAgents) && time.Since(began) < 2*fanoutTime {
		time.Sleep(10 * time.Millisecond)
	}
	after, err := processorTime(etcd)
	took := time.Since(began)
	f[fmt.Sprint(size, "-bytes-events-a-second")] = float64(received.Load()) / took.Seconds()
	f[fmt.Sprint(size, "-bytes-microseconds-an-event")] = float64((after - before).Microseconds()) / float64(received.Load())
	return err
}

func writeRecords(ctx context.Context, dir string, size int) (writes int, err error) {
	s, err := openStore(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Stop(context.Background())) }()
	tick := time.NewTicker(time.Second / fanoutChanges)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < fanoutTime; writes++ {
		<-tick.C
		if err := s.Create(ctx, fmt.Sprint("endpoints/", writes), []byte(strings.Repeat("x", size))); err != nil {
			return writes, err
		}
	}
	return writes, nil
}

// etcdProcess starts this program as an etcd.
func etcdProcess(dir string) (pid int, end func() error, err error) {
	cmd := exec.Command(os.Args[0], "etcd", dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, nil, err
	}
	end = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil && !errors.Is(err, io.EOF) {
		return 0, nil, errors.Join(err, end())
	}
	return cmd.Process.Pid, end, nil
}

func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+2:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}
