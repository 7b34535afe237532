package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/task"
)

// clusterStatus is the answer of "porin cluster status".
type clusterStatus struct {
	Nodes   int            `json:"nodes"` // Nodes that are to have an agent
	Agents  []programs     `json:"agents"`
	Proxies []programs     `json:"proxies"`
	Pools   []v1.PoolSpec  `json:"pools"`
	Faults  []clusterFault `json:"faults"` // the exit code is 1 if there are any
	Notes   []clusterFault `json:"notes"`  // may be intended
}

// programs are the agents or proxies of one version in one state.
type programs struct {
	Version string   `json:"version"`
	State   string   `json:"state"` // "ready", "not ready", "no answer" or "not running"
	Nodes   []string `json:"nodes"`
}

// statusInterval is the pause between two rounds of --wait.
const statusInterval = 2 * time.Second

// clusterStatusCommand is "porin cluster status". Faults are on stdout, and a failure.
func clusterStatusCommand(ctx context.Context, s *session, _ []string) error {
	deadline := s.now().Add(s.wait)
	for {
		status, err := readClusterStatus(ctx, s)
		if (err != nil || len(status.Faults) > 0) && s.now().Before(deadline) {
			if err := task.Sleep(ctx, statusInterval); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := s.print(status, func(w io.Writer) { clusterStatusTable(w, status) }); err != nil {
			return err
		}
		if n := len(status.Faults); n > 0 {
			return errors.New(plural(n, "fault"))
		}
		return nil
	}
}

func readClusterStatus(ctx context.Context, s *session) (*clusterStatus, error) {
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return nil, err
	}
	var faults, notes faultList
	status := &clusterStatus{Agents: []programs{}, Proxies: []programs{}, Pools: []v1.PoolSpec{}}
	agents := agentsOf(nodes, &faults)
	answers := fleet.Ask[v1.Status](ctx, s.cluster, agents, nil, "status")
	for _, a := range answers {
		status.Agents = addProgram(status.Agents, a.Pod.Node, cmp.Or(a.Value.Version, a.Pod.Image), agentState(a))
		if a.Err != nil {
			faults.add(a.Pod.Node, "agent: "+a.Err.Error())
			continue
		}
		statusFaults(a.Pod.Node, a.Value, &faults, &notes)
	}
	for _, n := range nodes {
		if !n.Linux {
			continue
		}
		status.Nodes++
		for _, p := range n.Proxies {
			state := "ready"
			if !p.Ready {
				state = "not ready"
				faults.add(n.Name, "proxy: not ready: "+p.Reason)
			}
			status.Proxies = addProgram(status.Proxies, n.Name, p.Image, state)
		}
	}
	addRecordFaults(ctx, s, nodes, status, &faults, &notes)
	addSchemaFaults(ctx, s, &faults, &notes)
	status.Faults, status.Notes = faults.grouped(), notes.grouped()
	return status, nil
}

// agentsOf returns the pod of each node's agent. Of two pods it prefers a running one, and then the younger one.
func agentsOf(nodes []fleet.Node, faults *faultList) (agents []fleet.Pod) {
	for _, n := range nodes {
		switch {
		case len(n.Agents) > 0:
			agents = append(agents, slices.MaxFunc(n.Agents, func(a, b fleet.Pod) int {
				return cmp.Or(compareBool(a.Running, b.Running), a.Created.Compare(b.Created))
			}))
		case n.Linux:
			faults.add(n.Name, "no agent: the DaemonSet porin-agent has no pod there")
		}
	}
	return agents
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

func agentState(a fleet.Answer[v1.Status]) string {
	switch {
	case !a.Pod.Running:
		return "not running"
	case a.Err != nil:
		return "no answer"
	case !a.Value.Ready:
		return "not ready"
	}
	return "ready"
}

func addProgram(list []programs, node, version, state string) []programs {
	for i, p := range list {
		if p.Version == version && p.State == state {
			list[i].Nodes = append(p.Nodes, node)
			return list
		}
	}
	return append(list, programs{Version: version, State: state, Nodes: []string{node}})
}

// statusFaults adds what one agent says that is wrong, and what is worth knowing.
func statusFaults(node string, answer v1.Status, faults, notes *faultList) {
	for _, c := range answer.Health.Cells {
		if c.State != "ok" {
			faults.add(node, c.State+": "+c.Cell+", "+c.Reason)
		}
	}
	if !answer.Ready {
		faults.add(node, "agent: not ready")
	}
	for _, r := range answer.Resources {
		if !r.Available {
			faults.add(node, "lacking: "+resourceLine(r))
		}
	}
	if answer.Held.Count > 0 {
		faults.add(node, fmt.Sprintf("held: %s that the agent's start could not explain (porin status)", plural(answer.Held.Count, "attachment")))
	}
	for _, f := range answer.Findings.First {
		faults.add(node, fmt.Sprintf("doctor: %s, %s: %s (porin cluster doctor)", f.Kind, f.Subject, f.Detail))
	}
	if more := answer.Findings.Count - len(answer.Findings.First); more > 0 {
		faults.add(node, fmt.Sprintf("doctor: %d more findings (porin cluster doctor)", more))
	}
	for _, c := range answer.Conflicts {
		faults.add(node, fmt.Sprintf("conflict: addresses of block %s are in use here, and node %s owns it (porin doctor)", c.CIDR, cmp.Or(c.Owner, "?")))
	}
	if answer.Policy.Error != "" {
		faults.add(node, "policy: the last change is not in the datapath: "+answer.Policy.Error)
	}
	if p := answer.Proxy; p.Error != "" {
		faults.add(node, "proxy: "+p.Error)
	}
	networkFaults(node, answer.Network, faults)
	if k := answer.Kubernetes; k != nil {
		for _, kind := range k.Kinds {
			if kind.Error != "" {
				faults.add(node, "kubernetes: "+kind.Kind+": "+kind.Error)
			}
		}
		for _, pod := range k.UnattachedPods {
			notes.add(node, "pod of another network plugin: "+pod)
		}
	}
	if answer.Policy.Audit {
		notes.add(node, "policy: no policy is in force: the agent runs with --policy-audit")
	}
	for _, report := range answer.Policy.Reports {
		notes.add(node, "policy: "+strings.Join(report.Policies, ", ")+": "+report.Text)
	}
	for _, missing := range answer.Datapath.Missing {
		notes.add(node, "kernel: "+missing)
	}
}

func networkFaults(node string, n v1.NetworkStatus, faults *faultList) {
	switch {
	case n.StoreAway:
		faults.add(node, "network: the store has not answered since the agent's start")
	case n.Peers > 0 && !n.Published:
		faults.add(node, "network: the other nodes do not know this node")
	}
	if n.MissingPeers > 0 {
		faults.add(node, fmt.Sprintf("network: the store has lost the records of %s", plural(n.MissingPeers, "node")))
	}
	if n.Errors > 0 {
		faults.add(node, fmt.Sprintf("network: %s of other nodes have no route (porin node peers)", plural(n.Errors, "block")))
	}
	if n.Tunnel != nil && n.Tunnel.Error != "" {
		faults.add(node, "tunnel: "+n.Tunnel.Error)
	}
	if n.Masquerade.Error != "" {
		faults.add(node, "masquerade: "+n.Masquerade.Error)
	}
}

// addRecordFaults reads Porin's records at the API server.
func addRecordFaults(ctx context.Context, s *session, nodes []fleet.Node, status *clusterStatus, faults, notes *faultList) {
	pools, err := s.client.Pools(ctx)
	if err != nil {
		faults.add("", "pools: "+err.Error())
	}
	if pools != nil {
		status.Pools = pools
	}
	for _, p := range pools {
		for _, warning := range p.Warnings {
			notes.add("", "pool "+p.Name+": "+warning)
		}
	}
	records, err := s.client.Nodes(ctx)
	if err != nil {
		faults.add("", "node records: "+err.Error())
	}
	present := map[string]bool{}
	for _, n := range nodes {
		present[n.Name] = true
	}
	for _, r := range records {
		switch {
		case r.Contested:
			faults.add(r.Name, "two machines have the key of the node's record (porin cluster node reset)")
		case !present[r.Name]:
			notes.add(r.Name, "there are records of a node, and no Node of that name (porin cluster node gc)")
		}
	}
	if state, err := s.client.Recovery(ctx); err == nil && state.UnderWay {
		faults.add("", fmt.Sprintf("recovery: under way since %s, %s have not written their blocks", sinceText(state.Began), plural(len(state.Unwritten), "node")))
	}
}

func clusterStatusTable(w io.Writer, status *clusterStatus) {
	row(w, "Nodes:", status.Nodes)
	programRows(w, "Agents:", status.Agents)
	programRows(w, "Proxies:", status.Proxies)
	for _, p := range status.Pools {
		row(w, "Pool:", joinNonEmpty(p.Name, joined(p.Prefixes)), ownedText(p, "ipv4"), ownedText(p, "ipv6"), poolState(p))
	}
	faultRows(w, "Fault:", status.Faults)
	faultRows(w, "Note:", status.Notes)
}

// faultRows have "n1 n2: no agent". Faults of nodes that differ in numbers alone, such as addresses, are one line.
func faultRows(w io.Writer, label string, list []clusterFault) {
	type line struct {
		text  string
		nodes []string
		alike int
	}
	byKey, order := map[string]*line{}, []*line{}
	for _, f := range list {
		key := withoutNumbers(f.Text)
		if len(f.Nodes) == 0 {
			key = f.Text
		}
		l := byKey[key]
		if l == nil {
			l = &line{text: f.Text}
			byKey[key], order = l, append(order, l)
		} else {
			l.alike++
		}
		l.nodes = append(l.nodes, f.Nodes...)
	}
	for _, l := range order {
		text := l.text
		if len(l.nodes) > 0 {
			slices.Sort(l.nodes)
			text = nodesText(slices.Compact(l.nodes)) + ": " + text
		}
		if l.alike > 0 {
			text += fmt.Sprintf(" (and %d with other numbers: -o json)", l.alike)
		}
		row(w, label, text)
	}
}

// withoutNumbers is the text without words that are numbers or IPv4 addresses. Those of names stay.
func withoutNumbers(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		if strings.Trim(word, "0123456789.:,;()") == "" {
			words[i] = ""
		}
	}
	return strings.Join(words, " ")
}

// programRows have "4 ready, v0.3.0".
func programRows(w io.Writer, label string, list []programs) {
	for _, p := range list {
		text := fmt.Sprintf("%d %s, %s", len(p.Nodes), p.State, p.Version)
		if p.State != "ready" {
			text += ": " + nodesText(p.Nodes)
		}
		row(w, label, text)
	}
}

// shownNodes bounds how many nodes a line names. JSON has all.
const shownNodes = 4

func nodesText(nodes []string) string {
	text := strings.Join(nodes[:min(len(nodes), shownNodes)], " ")
	if more := len(nodes) - shownNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// clusterFault is something wrong, on one or more nodes.
type clusterFault struct {
	Text  string   `json:"text"`
	Nodes []string `json:"nodes"` // empty: it is about the cluster
}

// faultList collects what nodes say.
type faultList struct {
	byText map[string]*clusterFault
	count  map[string]int // by node
}

// maxFaults bounds what one node says: its answer is hostile.
const maxFaults = 50

// add joins what several nodes say alike.
func (l *faultList) add(node, text string) {
	if l.byText == nil {
		l.byText, l.count = map[string]*clusterFault{}, map[string]int{}
	}
	if l.count[node]++; node != "" && l.count[node] > maxFaults {
		text = fmt.Sprintf("the agent says more than %d things (kubectl exec)", maxFaults)
	}
	f := l.byText[text]
	if f == nil {
		f = &clusterFault{Text: text, Nodes: []string{}}
		l.byText[text] = f
	}
	if node != "" && !slices.Contains(f.Nodes, node) {
		f.Nodes = append(f.Nodes, node)
	}
}

// nodes is how many nodes have a fault.
func (l *faultList) nodes() int { return len(l.count) }

// grouped has the faults of most nodes first.
func (l *faultList) grouped() []clusterFault {
	list := make([]clusterFault, 0, len(l.byText))
	for _, f := range l.byText {
		slices.Sort(f.Nodes)
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b clusterFault) int {
		return cmp.Or(cmp.Compare(len(b.Nodes), len(a.Nodes)), strings.Compare(a.Text, b.Text))
	})
	return list
}
