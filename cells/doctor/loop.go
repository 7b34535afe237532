package doctor

import (
	"context"
	"fmt"
	"time"
)

// examinationTimeout bounds what the loop's own examination may take.
const examinationTimeout = time.Minute

// loop is the goroutine that examines and repairs.
type loop struct {
	ctx     context.Context // ends when the doctor is to stop
	cancel  context.CancelFunc
	found   chan struct{} // holds a token when an examination may have made repairs due
	started chan struct{} // closed when the loop runs
	ended   chan struct{} // closed when it has ended
}

func newLoop() loop {
	l := loop{found: make(chan struct{}, 1), started: make(chan struct{}), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// kick has the repairs that are due done soon. It does not block.
func (l *loop) kick() {
	select {
	case l.found <- struct{}{}:
	default:
	}
}

// Start has the doctor examine at each interval, and repair, until Stop. It is called once.
func (d *Doctor) Start() {
	close(d.loop.started)
	go func() {
		defer close(d.loop.ended)
		d.run(d.loop.ctx)
	}()
}

func (d *Doctor) run(ctx context.Context) {
	ticks, stop := ticker(d.cfg.Interval)
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			d.look(ctx)
		case <-d.loop.found:
			d.repairDue(ctx)
		}
	}
}

// look is an examination that nobody asked for.
func (d *Doctor) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, examinationTimeout)
	defer cancel()
	_, err := d.examine(ctx, Scope{}, d.due)
	if err != nil && d.loop.ctx.Err() == nil {
		d.log.Warn("no examination, next try after the interval", "error", err)
	}
	d.loop.kick()
}

// ticker ticks never for 0.
func ticker(interval time.Duration) (ticks <-chan time.Time, stop func()) {
	if interval == 0 {
		return nil, func() {}
	}
	t := time.NewTicker(interval)
	return t.C, t.Stop
}

// Stop ends what Start began and waits for it, as long as ctx lasts. Without a Start it does nothing.
func (d *Doctor) Stop(ctx context.Context) error {
	d.loop.cancel()
	select {
	case <-d.loop.started:
	default:
		return nil
	}
	select {
	case <-d.loop.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the examination that runs: %w", ctx.Err())
	}
}
