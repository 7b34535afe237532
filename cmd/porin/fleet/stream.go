package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// reorder is how long a line waits for lines of other nodes that are older.
const reorder = 500 * time.Millisecond

// maxLine bounds one line of a stream, in bytes. Two pods with as many labels as they may have are in 200 KiB.
const maxLine = 256 << 10

// NodeFlow is a flow in the stream of a node, and a line of "porin cluster monitor -o json".
type NodeFlow struct {
	Node string `json:"node"`
	Late bool   `json:"late,omitempty"` // a later one of another node is before it
	v1.Flow
}

// Follow runs porin with the arguments and -o json in the container of each pod, until ctx or all commands end. It
// calls each with the flows of all pods by their time, and failed when a command ends with an error, or has not
// ended at the deadline of ctx. Both run in the caller's goroutine. An error of each ends it.
func Follow(ctx context.Context, c Cluster, pods []Pod, each func(NodeFlow) error, failed func(Pod, error), args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// It is never closed: a stream may still write after Run has returned with an error.
	events := make(chan event, 1024)
	running := map[string]Pod{}
	for _, pod := range pods {
		running[pod.Name] = pod
		go func() {
			err := follow(ctx, c, pod, args, func(f v1.Flow) error { return send(ctx, events, event{pod: pod, flow: f}) })
			_ = send(ctx, events, event{pod: pod, ended: true, err: err}) // the caller has ended
		}()
	}
	m := merge{each: each}
	tick := time.NewTicker(reorder / 5)
	defer tick.Stop()
	for len(running) > 0 {
		select {
		case e := <-events:
			switch {
			case !e.ended:
				m.add(e.pod.Node, e.flow, time.Now())
			case e.err == nil:
				delete(running, e.pod.Name)
			case ctx.Err() == nil:
				delete(running, e.pod.Name)
				failed(e.pod, e.err)
			}
		case now := <-tick.C:
			if err := m.flush(now.Add(-reorder)); err != nil {
				return err
			}
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				for _, name := range slices.Sorted(maps.Keys(running)) {
					failed(running[name], errors.New("no answer in time"))
				}
			}
			return errors.Join(m.flush(time.Time{}), ctx.Err())
		}
	}
	return m.flush(time.Time{})
}

// event is a line of a stream, or its end.
type event struct {
	pod   Pod
	flow  v1.Flow
	ended bool
	err   error
}

func send(ctx context.Context, to chan<- event, e event) error {
	select {
	case to <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func follow(ctx context.Context, c Cluster, pod Pod, args []string, each func(v1.Flow) error) error {
	if !pod.Running {
		return errors.New(joinNonEmpty("its container does not run", pod.Reason))
	}
	stderr := new(tail)
	exec, end := context.WithCancelCause(ctx)
	defer end(nil)
	stdout := &lines{each: each, failed: end}
	// The command ends with its stdin, when this process is killed, too.
	err := c.Run(exec, pod, append([]string{"porin", "-o", "json"}, args...), untilDone{exec}, stdout, stderr)
	switch {
	case err != nil && ctx.Err() == nil && exec.Err() != nil:
		return context.Cause(exec)
	case err != nil:
		return commandError{err, stderr.text()}
	case len(stdout.rest) > 0:
		return fmt.Errorf("its answer ends with half a line, %.40q", stdout.rest)
	}
	return nil
}

// untilDone is a stdin that has nothing, and ends with the context.
type untilDone struct{ context.Context }

// Read implements io.Reader.
func (u untilDone) Read([]byte) (int, error) {
	<-u.Done()
	return 0, io.EOF
}

// lines passes each line of what is written to each.
type lines struct {
	each   func(v1.Flow) error
	failed func(error) // ends the command, which would go on without a reader
	rest   []byte
}

var errLineTooLong = errors.New("a line of its answer is longer than 256 KiB")

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	if err := l.pass(); err != nil {
		l.failed(err)
		return 0, err
	}
	return len(p), nil
}

func (l *lines) pass() error {
	for {
		line, rest, found := bytes.Cut(l.rest, []byte("\n"))
		switch {
		case !found && len(l.rest) > maxLine:
			return errLineTooLong
		case !found:
			return nil
		}
		var flow v1.Flow
		if err := json.Unmarshal(line, &flow); err != nil {
			return fmt.Errorf("its answer cannot be read: %w", err)
		}
		if err := l.each(flow); err != nil {
			return err
		}
		l.rest = rest
	}
}

// merge orders the lines of several streams by their time.
type merge struct {
	each    func(NodeFlow) error
	waiting []arrival
	last    time.Time // of the lines that were passed on
}

type arrival struct {
	flow NodeFlow
	time time.Time
	came time.Time
}

// add sorts a line from the future by the present time: else a clock that is ahead would make the lines of all other
// nodes late.
func (m *merge) add(node string, flow v1.Flow, now time.Time) {
	at := flow.Time
	if at.After(now) {
		at = now
	}
	m.waiting = append(m.waiting, arrival{NodeFlow{Node: node, Flow: flow}, at, now})
}

// flush passes lines on in the order of their time, up to the last one received before; all with the zero time.
func (m *merge) flush(before time.Time) error {
	slices.SortStableFunc(m.waiting, func(a, b arrival) int {
		return cmp.Or(a.time.Compare(b.time), cmp.Compare(a.flow.Node, b.flow.Node))
	})
	n := len(m.waiting)
	if !before.IsZero() {
		for n > 0 && m.waiting[n-1].came.After(before) {
			n--
		}
	}
	for _, a := range m.waiting[:n] {
		a.flow.Late = a.time.Before(m.last)
		if a.time.After(m.last) {
			m.last = a.time
		}
		if err := m.each(a.flow); err != nil {
			return err
		}
	}
	m.waiting = slices.Delete(m.waiting, 0, n)
	return nil
}
