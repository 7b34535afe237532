package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
)

// tcxNamespace runs f in a network namespace: BPF calls take indexes of devices to be of their thread's.
type tcxNamespace func(f func() error) error

// tcxHook is a TCX hook (Linux 6.6). The program is attached without a BPF link, so it stays when the
// agent ends. It is known by its name.
type tcxHook struct {
	side      *uplinkSide
	program   *loader.Program
	namespace tcxNamespace
}

func (h *tcxHook) find(index int) (id uint32, err error) {
	err = h.namespace(func() error {
		id, err = h.side.findTCX(index)
		return err
	})
	return id, err
}

// findTCX is for the namespace of the calling thread.
func (s *uplinkSide) findTCX(index int) (uint32, error) {
	there, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: s.tcx})
	if err != nil {
		return 0, explain("list TCX programs of link", index, err)
	}
	for _, p := range there.Programs {
		if isProgram(p.ID, s.program) {
			return uint32(p.ID), nil
		}
	}
	return 0, nil
}

// isProgram is false for a program that ends meanwhile.
func isProgram(id ebpf.ProgramID, name string) bool {
	program, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer program.Close()
	info, err := program.Info()
	return err == nil && info.Name == name
}

func (h *tcxHook) attach(index int) error {
	err := h.namespace(func() error {
		previous, err := h.side.openTCX(index)
		if err != nil {
			return err
		}
		anchor := link.Head()
		if h.side.last {
			anchor = link.Tail()
		}
		if previous != nil {
			defer previous.Close()
			anchor = link.ReplaceProgram(previous)
		}
		return link.RawAttachProgram(link.RawAttachProgramOptions{
			Target: index, Program: h.program.Program, Attach: h.side.tcx, Anchor: anchor,
		})
	})
	return explain(fmt.Sprintf("attach %s by TCX to link", h.side.program), index, err)
}

func (h *tcxHook) detach(index int) error {
	err := h.namespace(func() error {
		program, err := h.side.openTCX(index)
		if program == nil || err != nil {
			return err
		}
		defer program.Close()
		return link.RawDetachProgram(link.RawDetachProgramOptions{Target: index, Program: program, Attach: h.side.tcx})
	})
	if errors.Is(err, unix.ENOENT) { // it went meanwhile
		return nil
	}
	return explain(fmt.Sprintf("detach %s by TCX from link", h.side.program), index, err)
}

// openTCX returns the program that findTCX finds, or nil. The caller closes it.
func (s *uplinkSide) openTCX(index int) (*ebpf.Program, error) {
	id, err := s.findTCX(index)
	if id == 0 || err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromID(ebpf.ProgramID(id))
}
