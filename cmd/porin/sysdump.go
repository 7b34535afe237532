package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cmd/porin/dump"
	"porin.dev/porin/internal/version"
)

// dumpedFlows is how many flows of a node are in an archive. HTTP requests are not: their paths may have secrets.
const dumpedFlows = 1000

// sysdump is "porin sysdump": all that the agent and the kernel of this node say, in one archive.
func sysdump(ctx context.Context, s *session, args []string) error {
	d := dump.New("porin sysdump "+version.Of(), s.now(), dump.NodeLimit, new(bytes.Buffer)) // an agent's container has no /tmp
	for _, f := range agentFiles(s) {
		value, err := f.read(ctx)
		if err := d.AddJSON(f.name+".json", value, err); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name string
		read func() (string, error)
	}{{"links", links}, {"addresses", linkAddresses}, {"routes", routes}, {"rules", rules}, {"neighbours", neighbours}} {
		text, err := f.read()
		if err != nil {
			d.Missing(f.name+".txt", err)
			continue
		}
		if err := d.Add(f.name+".txt", []byte(text)); err != nil {
			return err
		}
	}
	return writeArchive(ctx, s, d, args[0])
}

// checkAbsent fails if there is such a file, before anything is collected.
func checkAbsent(file string) error {
	if _, err := os.Lstat(file); file != "-" && err == nil {
		return fmt.Errorf("%s is there already: choose another name", file)
	}
	return nil
}

// writeArchive writes to a file that is not there yet, or to stdout for "-"; nothing when ctx has ended.
func writeArchive(ctx context.Context, s *session, d *dump.Dump, file string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if file == "-" {
		_, err := d.WriteTo(s.out)
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	size, err := d.WriteTo(out)
	if closing := out.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return errors.Join(err, os.Remove(file))
	}
	if n := d.MissingCount(); n > 0 {
		return s.done(nil, "%s written, %d KiB; %s missing: see its %s", file, (size+1023)>>10, plural(n, "part"), dump.Index)
	}
	return s.done(nil, "%s written, %d KiB", file, (size+1023)>>10)
}

// agentFile is an answer of the agent that goes into an archive.
type agentFile struct {
	name string
	read func(context.Context) (any, error)
}

func answer[T any](read func(context.Context) (T, error)) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) { return read(ctx) }
}

func agentFiles(s *session) []agentFile {
	return []agentFile{
		{"status", answer(s.client.Status)},
		{"health", answer(s.client.Health)},
		{"doctor", func(ctx context.Context) (any, error) { return s.client.Doctor(ctx, "") }},
		{"controllers", answer(s.client.Controllers)},
		{"endpoints", func(ctx context.Context) (any, error) { return s.client.Endpoints(ctx, "") }},
		{"trace", func(ctx context.Context) (any, error) { return s.client.Traces(ctx, "") }},
		{"peers", answer(s.client.Peers)},
		{"policies", answer(s.client.Policies)},
		{"ipam", func(ctx context.Context) (any, error) { return ipamWithoutReservations(ctx, s) }},
		{"bpf", func(ctx context.Context) (any, error) { return s.inspect(bpfFolder(ctx, s)) }},
		{"events", func(ctx context.Context) (any, error) { return all(s.client.Events(ctx, client.EventOptions{})) }},
		{"flows", func(ctx context.Context) (any, error) {
			return all(s.client.Flows(ctx, client.FlowOptions{Last: dumpedFlows, Not: []string{"protocol=http"}}))
		}},
	}
}

func all[T any](stream iter.Seq2[T, error]) (list []T, err error) {
	for value, err := range stream {
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

func ipamWithoutReservations(ctx context.Context, s *session) (any, error) {
	a, err := s.client.IPAM(ctx)
	a.Allocations = slices.DeleteFunc(a.Allocations, func(a v1.Allocation) bool { return a.Permanent || !a.Expires.IsZero() })
	return a, err
}

// dumpedLines bounds a list of the kernel.
const dumpedLines = 20000

func lines[T any](list []T, err error, text func(T) string) (string, error) {
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	for _, item := range list[:min(len(list), dumpedLines)] {
		fmt.Fprintln(&out, text(item))
	}
	if more := len(list) - dumpedLines; more > 0 {
		fmt.Fprintf(&out, "and %d more\n", more)
	}
	return out.String(), nil
}

func links() (string, error) {
	list, err := netlink.LinkList()
	return lines(list, err, func(l netlink.Link) string {
		a := l.Attrs()
		return fmt.Sprintf("%d: %s %s mtu %d %s master %d %s %s", a.Index, a.Name, l.Type(), a.MTU, a.OperState, a.MasterIndex, a.HardwareAddr, a.Flags)
	})
}

func linkAddresses() (string, error) {
	list, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	return lines(list, err, func(a netlink.Addr) string { return fmt.Sprintf("%d: %s", a.LinkIndex, a) })
}

func routes() (string, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	return lines(list, err, func(r netlink.Route) string { return r.String() })
}

func rules() (string, error) {
	list, err := netlink.RuleList(netlink.FAMILY_ALL)
	return lines(list, err, func(r netlink.Rule) string { return r.String() })
}

func neighbours() (string, error) {
	list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	return lines(list, err, func(n netlink.Neigh) string { return fmt.Sprintf("%d: %s state %#x", n.LinkIndex, n.String(), n.State) })
}
