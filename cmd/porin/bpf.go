package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
)

const aboutBPF = `It reads the kernel, and needs root and the network namespace of the agent. The agent tells the folder of programs and maps; without an
agent it is the default, or --bpf-root.`

// bpf prints also what could be read when something could not.
func bpf(ctx context.Context, s *session, _ []string) error {
	found, err := s.inspect(bpfFolder(ctx, s))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("only root may read BPF objects: %w", err)
	}
	return errors.Join(s.print(withoutNull(found), func(w io.Writer) { s.bpfTables(w, found) }), err)
}

// bpfFolder is --bpf-root, or what the agent says, or the default.
func bpfFolder(ctx context.Context, s *session) string {
	if s.bpfRoot != "" {
		return s.bpfRoot
	}
	if status, err := s.client.Status(ctx); err == nil && status.Datapath.BPFRoot != "" {
		return status.Datapath.BPFRoot
	}
	return datapath.DefaultConfig().BPFRoot
}

func (s *session) bpfTables(w io.Writer, found datapath.Inspection) {
	row(w, "PROGRAM", "ID", "TAG", "DIGEST", "LOADED")
	for _, p := range found.Programs {
		row(w, p.Name, p.ID, p.Tag, shortID(p.Digest), s.age(p.Loaded))
	}
	_, _ = fmt.Fprintln(w)
	row(w, "MAP", "ID", "TYPE", "ENTRIES", "MAX")
	for _, m := range found.Maps {
		row(w, m.Name, m.ID, m.Type, m.Entries, m.MaxEntries)
	}
	_, _ = fmt.Fprintln(w)
	row(w, "INTERFACE", "INDEX", "DIRECTION", "PROGRAM", "ID")
	for _, a := range found.Attachments {
		row(w, a.IfName, a.IfIndex, a.Direction, a.Name, a.ProgramID)
	}
}

// withoutNull makes lists that are not there [] in JSON.
func withoutNull(found datapath.Inspection) datapath.Inspection {
	found.Programs = append([]loader.PinnedProgram{}, found.Programs...)
	found.Maps = append([]loader.PinnedMap{}, found.Maps...)
	found.Attachments = append([]datapath.ProgramAtALink{}, found.Attachments...)
	return found
}
