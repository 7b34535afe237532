package datapath

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/conntrack"
)

// flowEvents reads what the programs tell of packets. It is a [flow.Source]. The kernel keeps the place up to which
// agents have read.
type flowEvents struct {
	mu      sync.Mutex      // guards the fields below
	reader  *ringbuf.Reader // nil unless started
	budgets *ebpf.Map
	lost    uint64 // the map's count of flows that were lost before start
	record  ringbuf.Record
}

func (f *flowEvents) start(m *loader.Maps) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost, err := lostEvents(m.EventBudgets)
	if err != nil {
		return err
	}
	reader, err := ringbuf.NewReader(m.FlowEvents)
	if err != nil {
		return fmt.Errorf("read map %s: %w", m.FlowEvents, err)
	}
	reader.SetDeadline(time.Unix(1, 0)) // existing flows only: the programs wake no reader
	f.reader, f.budgets, f.lost = reader, m.EventBudgets, lost
	return nil
}

func (f *flowEvents) stop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader == nil {
		return nil
	}
	err := f.reader.Close()
	f.reader, f.budgets = nil, nil
	return err
}

// Read implements [flow.Source].
func (f *flowEvents) Read(each func(*abi.FlowEvent) bool) (lost uint64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reader == nil {
		return 0, ErrNotStarted
	}
	for more := true; more; {
		err := f.reader.ReadInto(&f.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read the events of packets: %w", err)
		}
		var event abi.FlowEvent
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event)), f.record.RawSample)
		more = each(&event)
	}
	lost, err = lostEvents(f.budgets)
	return lost - f.lost, err
}

func lostEvents(budgets *ebpf.Map) (lost uint64, err error) {
	var ofCPUs []abi.EventBudget
	if err := budgets.Lookup(uint32(0), &ofCPUs); err != nil {
		return 0, fmt.Errorf("read map %s: %w", budgets, err)
	}
	for _, budget := range ofCPUs {
		lost += budget.Lost
	}
	return lost, nil
}

// translations asks the node's conntrack. It is a [flow.Translations].
type translations struct {
	mu        sync.Mutex // guards the fields below
	namespace *os.File   // nil unless started
	socket    *conntrack.Socket
}

func (t *translations) start(namespace *os.File) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namespace = namespace
}

func (t *translations) stop() (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.socket != nil {
		err = t.socket.Close()
	}
	t.namespace, t.socket = nil, nil
	return err
}

// Translate implements [flow.Translations].
func (t *translations) Translate(protocol uint8, packet conntrack.Tuple, answers bool) (c conntrack.Connection, found bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.namespace == nil {
		return c, false, ErrNotStarted
	}
	if t.socket == nil {
		if t.socket, err = conntrack.Open(int(t.namespace.Fd())); err != nil {
			return c, false, err
		}
	}
	return t.socket.Get(protocol, packet, answers)
}
