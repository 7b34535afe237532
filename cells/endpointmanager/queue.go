package endpointmanager

import "sync"

// queue runs the events of one endpoint, one after the other, in one goroutine.
type queue struct {
	mu     sync.Mutex // guards the fields below
	events []func()
	closed bool

	wake chan struct{} // holds one token while there may be something to do
	done chan struct{} // closed when the queue is closed and drained
}

// newQueue returns a queue whose events wait for run.
func newQueue() *queue { return &queue{wake: make(chan struct{}, 1), done: make(chan struct{})} }

// push appends an event. It is false when the queue was closed: the event will not run.
func (q *queue) push(event func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.events = append(q.events, event)
	q.signal()
	return true
}

// close lets the queue take no more events. Those in it still run; then done is closed.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run runs the events. It returns when the queue is closed and drained.
func (q *queue) run() {
	defer close(q.done)
	for range q.wake {
		for {
			event, closed := q.next()
			if event == nil && closed {
				return
			}
			if event == nil {
				break
			}
			event()
		}
	}
}

func (q *queue) next() (event func(), closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		q.events = nil // a burst does not keep its memory for the endpoint's whole life
		return nil, q.closed
	}
	event, q.events = q.events[0], q.events[1:]
	return event, q.closed
}
