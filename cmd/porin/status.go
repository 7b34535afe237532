package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

var errNotReady = errors.New("the agent is not ready")

func status(ctx context.Context, s *session, _ []string) error {
	if s.controllers {
		return controllers(ctx, s)
	}
	answer, err := s.client.Status(ctx)
	if err != nil {
		return err
	}
	if err := s.print(answer, func(w io.Writer) { s.statusTable(w, answer) }); err != nil {
		return err
	}
	if !answer.Ready {
		return errNotReady
	}
	return nil
}

func (s *session) statusTable(w io.Writer, answer v1.Status) {
	row(w, "Agent:", fmt.Sprintf("%s on %s, pid %d, up %s", answer.Version, answer.Node, answer.PID, s.age(answer.Started)))
	row(w, "Ready:", map[bool]string{true: "yes", false: "no"}[answer.Ready])
	for _, c := range answer.Health.Cells {
		if c.State != "ok" {
			row(w, capital(c.State)+":", c.Cell+", "+c.Reason)
		}
	}
	row(w, "Endpoints:", endpointCounts(answer.Endpoints))
	restoredRows(w, answer.Restored)
	heldRows(w, answer.Held)
	for _, f := range answer.Findings.First {
		row(w, "Found:", fmt.Sprintf("%s of %s, %s: %s (porin doctor)", f.Kind, f.Owner, f.Subject, f.Detail))
	}
	row(w, "Datapath:", datapathLine(answer.Datapath))
	for _, missing := range answer.Datapath.Missing {
		row(w, "Missing:", missing)
	}
	policyRows(w, answer.Policy)
	if p := answer.Proxy; p != (v1.ProxyStatus{}) {
		row(w, "Proxy:", proxyLine(p))
	}
	if u := answer.Datapath.Unmanaged; u != nil {
		row(w, "Unmanaged:", fmt.Sprintf("pods of other nodes of which nothing is known: %d times let in, %d times denied", u.Passed, u.Denied))
	}
	row(w, "Network:", networkLine(answer.Network))
	row(w, "Outside:", masqueradeLine(answer.Network.Masquerade))
	if answer.Kubernetes != nil {
		s.kubernetesRows(w, *answer.Kubernetes)
	}
	if answer.Recovery != nil {
		recoveryRows(w, *answer.Recovery)
	}
	conflictRows(w, answer.Conflicts)
	for _, r := range answer.Resources {
		label := "Lacking:"
		if r.Available {
			label = "Resource:"
		}
		row(w, label, resourceLine(r))
	}
}

// networkLine is "192.0.2.1, 2 blocks, native, 12 peers".
func networkLine(n v1.NetworkStatus) string {
	line := fmt.Sprintf("%s, %d blocks, %s, %d peers", addressesText(n.Addresses), n.Blocks, n.Routing, n.Peers)
	switch {
	case n.StoreAway && n.AsOf.IsZero():
		line += "; the store has NOT answered since the start: nothing is known of other nodes"
	case n.StoreAway:
		line += "; the store has NOT answered since the start: other nodes as known at " + n.AsOf.Local().Format(time.DateTime)
	case n.Peers > 0 && !n.Published:
		line += "; the others do NOT know this node"
	}
	if n.MissingPeers > 0 {
		line += fmt.Sprintf("; the store has lost the records of %d", n.MissingPeers)
	}
	if n.Errors > 0 {
		line += fmt.Sprintf("; %d blocks of others have no route", n.Errors)
	}
	if t := n.Tunnel; t != nil {
		line += "; tunnels at UDP port " + strconv.Itoa(t.Port)
		if len(t.Addresses) > 0 {
			line += " with " + addressesText(t.Addresses)
		}
		for _, reason := range slices.Sorted(maps.Keys(t.Dropped)) {
			line += fmt.Sprintf(", %d dropped (%s)", t.Dropped[reason], reason)
		}
		if t.Error != "" {
			line += "; they are NOT as they should be: " + t.Error
		}
	}
	return line
}

// masqueradeLine is "ipv4 ipv6 masqueraded, 12 connections so far".
func masqueradeLine(m v1.MasqueradeStatus) string {
	line := "nothing is masqueraded: the world sees the addresses of pods"
	if len(m.Families) > 0 {
		line = fmt.Sprintf("%s masqueraded, %d connections so far", strings.Join(m.Families, " "), m.Connections)
	}
	if m.Error != "" {
		line += "; it is NOT as it should be: " + m.Error
	}
	return line
}

// proxyLine is "2 sets of layer 7 rules, 5 connections".
func proxyLine(p v1.ProxyStatus) string {
	line := fmt.Sprintf("%d sets of layer 7 rules, %d connections", p.RuleSets, p.Connections)
	switch {
	case p.External && !p.Connected && p.Error != "":
		line = "there are layer 7 rules, and porin-proxy is NOT connected: what needs it goes on with the rules that it has, or waits for it if it does not run"
	case !p.InUse:
		line = "not in use"
	}
	if p.Connected {
		line += fmt.Sprintf("; porin-proxy %s, pid %d", p.Version, p.PID)
	}
	if p.Previous > 0 {
		line += fmt.Sprintf(", and %d previous whose requests have not ended", p.Previous)
	}
	if p.Error != "" {
		line += "; it is NOT as it should be: " + p.Error
	}
	return line
}

// shownReports bounds how many reports of policies are printed.
const shownReports = 5

// policyRows have "3, 9 identities, revision 12", and what authors of policies should know.
func policyRows(w io.Writer, p v1.PolicyStatus) {
	identities := fmt.Sprintf("%d identities", p.Identities)
	if p.Identities == 1 {
		identities = "1 identity"
	}
	row(w, "Policies:", fmt.Sprintf("%d, %s, revision %d", p.Policies, identities, p.Revision))
	if p.Audit {
		row(w, "Audit:", "NO policy is in force: the agent runs with --policy-audit")
	}
	if p.Error != "" {
		row(w, "", "The last change is NOT in the datapath, which has what was before; it is tried again: "+p.Error)
	}
	for _, report := range p.Reports[:min(len(p.Reports), shownReports)] {
		row(w, "Report:", strings.Join(report.Policies, ", ")+": "+report.Text)
	}
	if more := len(p.Reports) - shownReports; more > 0 {
		row(w, "Report:", fmt.Sprintf("and %d more: see porin policy list", more))
	}
}

func (s *session) kubernetesRows(w io.Writer, k v1.KubernetesStatus) {
	if n := len(k.UnattachedPods); n > 0 {
		defer row(w, "", fmt.Sprintf("%s of another network plugin: %s", plural(n, "pod"), strings.Join(k.UnattachedPods, " ")))
	}
	if k.Reachable {
		row(w, "Kubernetes:", k.Server)
		return
	}
	row(w, "Kubernetes:", k.Server+", NOT read")
	for _, kind := range k.Kinds {
		switch {
		case kind.Error != "" && kind.LastContact.IsZero():
			row(w, "", fmt.Sprintf("%s: never read: %s", kind.Kind, kind.Error))
		case kind.Error != "":
			row(w, "", fmt.Sprintf("%s: for %s: %s", kind.Kind, s.age(kind.LastContact), kind.Error))
		case !kind.Synced:
			row(w, "", kind.Kind+": not read yet")
		}
	}
}

// recoveryRows have "since 2026-11-20 11:00:00 UTC, this node has not written its blocks: see porin ipam recover".
func recoveryRows(w io.Writer, r v1.RecoveryStatus) {
	if r.Requested {
		row(w, "Recovery:", "requested; it begins when the store answers")
	}
	if !r.UnderWay {
		return
	}
	written := "has written"
	if r.Unwritten {
		written = "has not written"
	}
	row(w, "Recovery:", fmt.Sprintf("%s, this node %s its blocks: see porin ipam recover", sinceText(r.Began), written))
}

// shownConflicts bounds how many blocks in conflict are printed.
const shownConflicts = 5

func conflictRows(w io.Writer, list []v1.BlockConflict) {
	for _, c := range list[:min(len(list), shownConflicts)] {
		what := "node " + c.Owner + " owns it"
		if c.Owner == "" {
			what = "its record in the store cannot be read"
		}
		row(w, "Conflict:", fmt.Sprintf("addresses of %s are in use here, and %s: see porin doctor", c.CIDR, what))
	}
	if more := len(list) - shownConflicts; more > 0 {
		row(w, "Conflict:", fmt.Sprintf("and %d more", more))
	}
}

func restoredRows(w io.Writer, r v1.Restored) {
	row(w, "Restored:", fmt.Sprintf("%d taken over, %d replaced, %d undone, in %s", r.Adopted, r.Replaced, r.Undone, shortDuration(r.Duration)))
	for _, e := range r.Reasons {
		row(w, capital(e.Outcome+":"), shortAttachment(e.Endpoint)+", "+strings.Join(e.Reasons, "; "))
	}
	for _, removed := range r.Removed {
		row(w, "Removed:", removed)
	}
}

// heldRows are none when nothing is held.
func heldRows(w io.Writer, held v1.Held) {
	for _, e := range held.Endpoints {
		parts := []string{shortAttachment(e.Endpoint), joined(e.Addresses.List()), e.Detail}
		row(w, "Held:", strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", "))
	}
	if more := held.Count - len(held.Endpoints); more > 0 {
		row(w, "Held:", fmt.Sprintf("%d more", more))
	}
	if held.Count > 0 {
		row(w, "", "They are kept as they are; those that policies restricted and whose labels are not known reach nothing, and only the node reaches them. Find out why; when they are gone: porin restore accept")
	}
}

// resourceLine is "addresses/default/ipv4, 1 of 253 in use, 2 in quarantine".
func resourceLine(r v1.Resource) string {
	parts := []string{r.Name}
	switch {
	case r.Capacity > 0:
		parts = append(parts, fmt.Sprintf("%d of %d in use", r.Used, r.Capacity))
		if r.Quarantined > 0 {
			parts = append(parts, fmt.Sprintf("%d in quarantine", r.Quarantined))
		}
	case r.Available:
		parts = append(parts, "available")
	}
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	return strings.Join(parts, ", ")
}

func endpointCounts(byState map[string]int) string {
	total, parts := 0, []string{}
	for _, state := range slices.Sorted(maps.Keys(byState)) {
		total += byState[state]
		parts = append(parts, fmt.Sprintf("%d %s", byState[state], state))
	}
	if total == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func datapathLine(d v1.Datapath) string {
	if len(d.Programs) == 0 {
		return "none"
	}
	var programs []string
	for _, p := range d.Programs {
		programs = append(programs, fmt.Sprintf("%s (id %d)", p.Name, p.ID))
	}
	how := "loaded by this agent"
	if d.Adopted {
		how = "taken over"
	}
	return strings.Join(programs, ", ") + ", " + how
}

// controllers is the table of the agent's loops.
func controllers(ctx context.Context, s *session) error {
	list, err := s.client.Controllers(ctx)
	return s.show(list, err, func(w io.Writer) {
		row(w, "NAME", "RUNS", "FAILURES", "LAST RUN", "TOOK", "NEXT", "ERROR")
		for _, c := range list {
			runs, last, took, next := "-", "-", "-", "-"
			if c.Runs > 0 {
				runs = strconv.FormatUint(c.Runs, 10)
			}
			if c.LastRun != nil {
				last, took = s.age(*c.LastRun)+" ago", shortDuration(c.Duration)
			}
			if c.Next != nil {
				next = "in " + shortDuration(c.Next.Sub(s.now()).Round(time.Second))
			}
			row(w, c.Name, runs, strconv.Itoa(c.Failures), last, took, next, c.Error)
		}
	})
}

func controllerRun(ctx context.Context, s *session, args []string) error {
	if err := s.client.RunController(ctx, args[0]); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "%s runs now: porin status --controllers shows how it ends\n", printable(args[0]))
	return err
}

func controllerNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Controllers(ctx)
	for _, c := range list {
		all = append(all, cobra.CompletionWithDesc(c.Name, printable(c.Error)))
	}
	return all
}
