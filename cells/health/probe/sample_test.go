package probe

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
)

// TestDetectionProbability compares the formula with clusters that fail in a simulation: in each, all others have
// rounds that began at random times, and a node fails at some time of them.
func TestDetectionProbability(t *testing.T) {
	const interval = 60.0
	for _, row := range []struct {
		nodes, sample int
		within        float64
	}{
		{100, 60, 0.3}, {100, 60, 1}, {100, 10, 3}, {150, 3, 20}, {50, 50, 0.5},
	} {
		random := rand.New(rand.NewPCG(1, uint64(row.nodes)))
		others := make([]cluster.NodeID, row.nodes-1)
		for i := range others {
			others[i] = node(i).Node
		}
		const clusters = 200
		detected := 0
		for range clusters {
			for range row.nodes - 1 {
				s := &sampler{rand: random}
				phase := random.Float64() * interval // of the failure, in the round
				if probedWithin(s, others, row.sample, random, phase, row.within, interval) {
					detected++
					break
				}
			}
		}
		want := detectionProbability(row.nodes, row.sample, time.Minute, time.Duration(row.within*float64(time.Second)))
		got := float64(detected) / clusters
		if deviation := 4 * math.Sqrt(want*(1-want)/clusters); math.Abs(got-want) > deviation+0.01 {
			t.Errorf("%+v: detected %.3f, computed %.3f", row, got, want)
		}
	}
}

// probedWithin simulates two rounds of an observer, and reports whether it probes the first of the others in the
// window.
func probedWithin(s *sampler, others []cluster.NodeID, sample int, random *rand.Rand, phase, within, interval float64) bool {
	for round := range 2 {
		for i, id := range s.take(others, sample) {
			n := float64(min(sample, len(others)))
			at := float64(round)*interval + (float64(i)+random.Float64())*interval/n
			if id == others[0] && at >= phase && at < phase+within {
				return true
			}
		}
	}
	return false
}

// TestDetectionStated holds the figures of docs/health.md.
func TestDetectionStated(t *testing.T) {
	cfg := DefaultConfig()
	for _, row := range []struct {
		nodes  int
		within time.Duration
		least  float64
	}{{201, time.Second, 0.96}, {5000, time.Second, 0.96}, {201, 3 * time.Second, 0.9999}, {5000, 3 * time.Second, 0.9999}} {
		if got := detectionProbability(row.nodes, cfg.Sample, cfg.Interval, row.within); got < row.least {
			t.Errorf("%d nodes, within %s: %.5f, and the docs say at least %v", row.nodes, row.within, got, row.least)
		}
	}
	if got := observationRounds(4999, cfg.Sample); got != 49 {
		t.Errorf("a node of 5,000 has probed each of the others within %d rounds, and the docs say 49", got)
	}
}

func TestSampleHasEachNodeInItsTurn(t *testing.T) {
	s := &sampler{rand: rand.New(rand.NewPCG(1, 2))}
	var all []cluster.NodeID
	for i := range 1000 {
		all = append(all, node(i).Node)
	}
	seen := map[cluster.NodeID]int{}
	for range 10 {
		chosen := s.take(all, 100)
		if len(chosen) != 100 {
			t.Fatalf("a sample of %d", len(chosen))
		}
		for _, id := range chosen {
			seen[id]++
		}
	}
	for _, id := range all {
		if seen[id] != 1 {
			t.Errorf("%s was chosen %d times in a pass", id.Name, seen[id])
		}
	}
	// All others have gone: what waits is not chosen.
	if chosen := s.take(all[:150], 100); len(chosen) != 100 {
		t.Errorf("a sample of %d of 150", len(chosen))
	}
}

// detectionProbability is how likely at least one other node begins to probe a node within a time of its failure, in a
// cluster of so many nodes that each probe so many others in each interval: each does with the probability sample /
// (nodes-1) * within / interval, independently of the others.
func detectionProbability(nodes, sample int, interval, within time.Duration) float64 {
	others := float64(nodes - 1)
	if others <= 0 {
		return 0
	}
	each := min(1, float64(sample)/others) * min(1, within.Seconds()/interval.Seconds())
	return 1 - math.Pow(1-each, others)
}

// observationRounds is within how many rounds a node has probed each of so many others once, whatever the chance.
func observationRounds(others, sample int) int {
	return 2*((others+sample-1)/sample) - 1
}
