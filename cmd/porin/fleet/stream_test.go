package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// stubCluster writes lines to the stdout of each pod's command, at their times.
type stubCluster struct {
	Cluster
	lines map[string][]stubLine // by pod
	ends  error                 // of each command; nil: it goes on until the context ends
}

type stubLine struct {
	at   time.Duration // when it comes
	time int64         // what it says, in seconds since 1970
}

func (s stubCluster) Run(ctx context.Context, pod Pod, _ []string, _ io.Reader, stdout, _ io.Writer) error {
	start := time.Now()
	for _, l := range s.lines[pod.Name] {
		select {
		case <-time.After(time.Until(start.Add(l.at))):
		case <-ctx.Done():
			return ctx.Err()
		}
		// Half a line, and the other half later, as a network does it.
		if _, err := io.WriteString(stdout, `{"time":`); err != nil {
			return err
		}
		if _, err := io.WriteString(stdout, fmt.Sprintf("%q}\n", time.Unix(l.time, 0).Format(time.RFC3339))); err != nil {
			return err
		}
	}
	if s.ends != nil {
		return s.ends
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestFollowOrder has a slow node, whose lines come within the time for it, and later.
func TestFollowOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := stubCluster{lines: map[string][]stubLine{
			"fast": {{0, 1}, {time.Second, 4}, {5 * time.Second, 7}},
			"slow": {{300 * time.Millisecond, 0}, {4 * time.Second, 3}},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var got []string
		err := Follow(ctx, cluster, []Pod{{Name: "fast", Node: "a", Running: true}, {Name: "slow", Node: "b", Running: true}, {Name: "down", Node: "c", Reason: "off"}},
			func(f NodeFlow) error {
				got = append(got, fmt.Sprintf("%s%d%t", f.Node, f.Flow.Time.Unix(), f.Late))
				return nil
			}, func(p Pod, err error) { got = append(got, p.Node+" "+err.Error()) })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
		want := []string{"c its container does not run: off", "b0false", "a1false", "a4false", "b3true", "a7false", "a no answer in time", "b no answer in time"}
		if !slices.Equal(got, want) {
			t.Errorf("lines %q, want %q", got, want)
		}
	})
}

// TestFollowFuture has a node whose clock is years ahead: the lines of others are not late.
func TestFollowFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const year = 365 * 24 * 3600
		now := time.Now().Unix()
		cluster := stubCluster{lines: map[string][]stubLine{"ahead": {{0, now + year}}, "right": {{2 * time.Second, now + 2}}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		late := 0
		_ = Follow(ctx, cluster, []Pod{{Name: "ahead", Node: "a", Running: true}, {Name: "right", Node: "b", Running: true}},
			func(f NodeFlow) error {
				if f.Late {
					late++
				}
				return nil
			}, func(Pod, error) {})
		if late > 0 {
			t.Error("a line is late after one of the future")
		}
	})
}

// TestFollowRefused ends the command of a pod whose answer is nonsense, and goes on with the others.
func TestFollowRefused(t *testing.T) {
	var failures []string
	err := Follow(t.Context(), unending{}, []Pod{{Name: "one", Node: "a", Running: true}}, func(NodeFlow) error { return nil },
		func(_ Pod, err error) { failures = append(failures, err.Error()) })
	if err != nil || len(failures) != 1 || !strings.Contains(failures[0], "cannot be read") {
		t.Errorf("failures %q, error %v", failures, err)
	}
}

// unending writes nonsense, and goes on when that fails, as a command without a reader does.
type unending struct{ Cluster }

func (unending) Run(ctx context.Context, _ Pod, _ []string, _ io.Reader, stdout, _ io.Writer) error {
	_, _ = io.WriteString(stdout, "<html>\n")
	<-ctx.Done()
	return ctx.Err()
}

// TestFollowEnds ends when all commands have ended, and when the caller fails.
func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := []Pod{{Name: "one", Node: "a", Running: true}}
		cluster := stubCluster{lines: map[string][]stubLine{"one": {{0, 1}}}, ends: errors.New("gone")}
		lines, failures := 0, 0
		count := func(NodeFlow) error { lines++; return nil }
		if err := Follow(t.Context(), cluster, pods, count, func(Pod, error) { failures++ }); err != nil || lines != 1 || failures != 1 {
			t.Errorf("%d lines, %d failures, %v", lines, failures, err)
		}
		cluster.ends = nil
		full := errors.New("disk full")
		if err := Follow(t.Context(), cluster, pods, func(NodeFlow) error { return full }, nil); !errors.Is(err, full) {
			t.Errorf("a line that cannot be printed: %v", err)
		}
	})
}

// TestFollowLabels has two pods with as many labels as they may have.
func TestFollowLabels(t *testing.T) {
	all := map[string]string{}
	for i := range 256 {
		all[fmt.Sprintf("%s/%063d", strings.Repeat("a", 253), i)] = strings.Repeat("v", 63)
	}
	var flow bytes.Buffer
	_ = json.NewEncoder(&flow).Encode(v1.Flow{From: v1.FlowEnd{Labels: all}, To: v1.FlowEnd{Labels: all}})
	got := 0
	l := &lines{each: func(v1.Flow) error { got++; return nil }, failed: func(error) {}}
	for chunk := range slices.Chunk(flow.Bytes(), 32<<10) {
		if _, err := l.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got != 1 {
		t.Errorf("%d flows, want 1", got)
	}
}
