package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cmd/porin/dump"
	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/version"
)

// clusterSysdump is "porin cluster sysdump": the archives of all nodes, and what the API server has.
func clusterSysdump(ctx context.Context, s *session, args []string) error {
	if err := checkAbsent(args[0]); err != nil {
		return err
	}
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp("", "porin-sysdump-")
	if err != nil {
		return err
	}
	defer func() { _ = temp.Close() }()
	if err := os.Remove(temp.Name()); err != nil { // the file lives as long as it is open
		return err
	}
	d := dump.New("porin cluster sysdump "+version.Of(), s.now(), 0, temp)
	status, err := readClusterStatus(ctx, s)
	if err := d.AddJSON("cluster/status.json", status, err); err != nil {
		return err
	}
	for _, object := range s.cluster.Objects() {
		text, err := s.cluster.Object(ctx, object)
		if err != nil {
			d.Missing("cluster/"+object+".json", err)
			continue
		}
		if err := d.Add("cluster/"+object+".json", withoutSecrets(text)); err != nil {
			return err
		}
	}
	var faults faultList
	agents := agentsOf(nodes, &faults)
	for _, f := range faults.grouped() {
		for _, node := range f.Nodes {
			d.Missing("nodes/"+node, errors.New(f.Text))
		}
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(fleet.AtOnce)
	for _, agent := range agents {
		group.Go(func() error { return dumpNode(each, s, d, agent) })
	}
	for _, n := range nodes {
		for _, pod := range append(n.Agents, n.Proxies...) {
			group.Go(func() error { return dumpLogs(each, s, d, pod) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return writeArchive(ctx, s, d, args[0])
}

// dumpTimeout is for the archive of one node, or the logs of one pod.
const dumpTimeout = time.Minute

// dumpNode adds the archive of the node's porin sysdump. It fails when the archive cannot take it.
func dumpNode(ctx context.Context, s *session, d *dump.Dump, agent fleet.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	archive, err := fleet.Output(ctx, s.cluster, agent, nil, 2*dump.NodeLimit, "porin", "--timeout", dumpTimeout.String(), "sysdump", "-")
	if err != nil {
		d.Missing("nodes/"+agent.Node, err)
		return nil
	}
	return d.AddArchive("nodes/"+agent.Node, archive)
}

func dumpLogs(ctx context.Context, s *session, d *dump.Dump, pod fleet.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout)
	defer cancel()
	for name, previous := range map[string]bool{"": false, "-previous": true} {
		if previous && pod.Restarts == 0 {
			continue
		}
		file := fmt.Sprintf("nodes/%s/%s%s.log", pod.Node, pod.Name, name)
		text, err := s.cluster.Logs(ctx, pod, previous)
		if err != nil {
			d.Missing(file, err)
			continue
		}
		if err := d.Add(file, text); err != nil {
			return err
		}
	}
	return nil
}

// withoutSecrets removes from objects of the API server the environment of containers, and fields that kubectl and
// others keep copies in.
func withoutSecrets(text []byte) []byte {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil
	}
	strip(value)
	text, _ = json.MarshalIndent(value, "", "  ") // it comes from JSON
	return append(text, '\n')
}

func strip(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, child := range v {
			_, list := child.([]any) // a label can have these names, too
			switch {
			case list && (name == "env" || name == "envFrom" || name == "managedFields"):
				delete(v, name)
			case name == "metadata":
				if metadata, ok := child.(map[string]any); ok {
					delete(metadata, "annotations")
				}
			}
			strip(child)
		}
	case []any:
		for _, child := range v {
			strip(child)
		}
	}
}
