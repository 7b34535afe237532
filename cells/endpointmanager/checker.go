package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/deletionrecords"
)

// The disagreements that the manager owns.
const (
	kindLedgerLost    = "ledger-lost"
	kindRecordMissing = "record-missing"
	kindRecordDiffers = "record-differs"
	kindRecordOrphan  = "record-orphan"
	kindUnfinished    = "deletion-unfinished"
	kindHeld          = "endpoint-held"
	kindWaiting       = "deletion-record-waiting"
	kindUnreadable    = "deletion-record-unreadable"
)

// checker compares endpoints, ledger and deletion records. It is the manager's doctor.Checker.
type checker struct{ m *manager }

func newChecker(m *manager) checker { return checker{m} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "endpointmanager" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{Name: kindLedgerLost, Meaning: "the file of the ledger was removed or replaced while the agent runs: its writes are lost with it", Repair: "put the file back; or move away what has its place and restart the agent: without the file it holds the endpoints that it finds, and porin status says how to go on"},
		{Name: kindRecordMissing, About: doctor.Addresses, Meaning: "an endpoint is ready and not in the ledger: the next agent would not know it", Repair: "the record is written"},
		{Name: kindRecordDiffers, About: doctor.Addresses, Meaning: "the ledger has an endpoint other than it is", Repair: "the record is written"},
		{Name: kindRecordOrphan, About: doctor.Addresses, Meaning: "the ledger has an attachment that the agent does not know", Repair: "restart the agent: it brings the endpoint back, or takes it down"},
		{Name: kindHeld, Event: true, Meaning: "the start of the agent found most attachments unexplained, this one among them: it is kept as it is", Repair: "find out why; then delete the container, or, when what is held is gone, porin restore accept"},
		{Name: kindUnfinished, Meaning: "a deletion, or the undo of a creation, has failed", Repair: "it is tried again, after a while that doubles up to a minute"},
		{Name: kindWaiting, Meaning: "a deletion that was asked for without an agent is not done", Repair: "it is tried again"},
		{Name: kindUnreadable, Meaning: "a deletion record cannot be read, and was set aside", Repair: "look at the file, delete what it names, and remove it"},
	}
}

// Examine implements doctor.Checker.
func (c checker) Examine(ctx context.Context, only string) ([]doctor.Finding, error) {
	findings, err := c.ledger(only)
	findings = append(findings, c.unfinished(only)...)
	findings = append(findings, c.held(only)...)
	if err != nil || only != "" {
		return findings, err
	}
	if lost := checkLedger(c.m); lost != nil {
		findings = append(findings, doctor.Finding{Kind: kindLedgerLost, Subject: c.m.ledger.Path(), Detail: lost.Error()})
	}
	records, err := c.deletionRecords()
	return append(findings, records...), err
}

// ledger compares it with the endpoints that were ready before it was read and still are.
func (c checker) ledger(only string) (findings []doctor.Finding, err error) {
	before := c.m.table.byAttachment()
	records, err := c.m.ledger.Attachments()
	if err != nil {
		return nil, err
	}
	after := c.m.table.byAttachment()
	recorded := map[endpoint.Attachment]bool{}
	for _, rec := range records {
		a := rec.Endpoint.Spec.Attachment
		recorded[a] = true
		ep, known := after[a]
		_, was := before[a]
		switch {
		case only != "" && a.String() != only:
		case !known && !was:
			findings = append(findings, doctor.Finding{
				Kind: kindRecordOrphan, Subject: a.String(), Endpoint: knownText(a),
				Detail: fmt.Sprintf("the ledger has it in phase %q, written %s", rec.Phase, rec.At.Format("2006-01-02 15:04:05Z07:00")),
			})
		case ep.State == endpoint.Ready && before[a] == ep && (rec.Phase != ledger.Committed || !sameEndpoint(rec.Endpoint, ep)):
			findings = append(findings, c.record(kindRecordDiffers, ep,
				fmt.Sprintf("in the ledger it is number %d with %v in phase %q, and it is number %d with %v",
					rec.Endpoint.ID, rec.Endpoint.Addresses.List(), rec.Phase, ep.ID, ep.Addresses.List())))
		}
	}
	for a, ep := range after {
		if (only == "" || a.String() == only) && ep.State == endpoint.Ready && before[a] == ep && !recorded[a] {
			findings = append(findings, c.record(kindRecordMissing, ep, "it is ready and has no record"))
		}
	}
	return findings, nil
}

// sameEndpoint reports whether two are one endpoint, whatever state they are in.
func sameEndpoint(a, b endpoint.Endpoint) bool {
	a.State, b.State = "", ""
	return a == b
}

func (c checker) record(kind string, ep endpoint.Endpoint, detail string) doctor.Finding {
	a := ep.Spec.Attachment
	return doctor.Finding{
		Kind: kind, Subject: fmt.Sprintf("%s, number %d", a, ep.ID), Endpoint: a.String(), Detail: detail,
		Repair: func(ctx context.Context) error { return c.m.Repair(ctx, a) },
	}
}

// unfinished are the removals that have failed and are tried again.
func (c checker) unfinished(only string) (findings []doctor.Finding) {
	for _, e := range c.m.registry.list(func(e *managed) bool { return e.failed != nil && (only == "" || e.attachment.String() == only) }) {
		var failed failedDeletion
		c.m.registry.withLock(func() { failed = *e.failed })
		findings = append(findings, doctor.Finding{
			Kind: kindUnfinished, Subject: e.attachment.String(), Endpoint: knownText(e.attachment),
			Detail: fmt.Sprintf("tried %d times: %v", failed.times, failed.err),
			Repair: func(ctx context.Context) error {
				return errors.Join(c.m.removeOne(ctx, e, failed.config, startWatch(endpoint.OperationDel)).Errors...)
			},
		})
	}
	return findings
}

// held have no repair: an administrator says whether they are gone.
func (c checker) held(only string) (findings []doctor.Finding) {
	for _, h := range c.m.Held() {
		if a := h.Endpoint.Spec.Attachment; only == "" || a.String() == only {
			findings = append(findings, doctor.Finding{Kind: kindHeld, Subject: a.String(), Endpoint: knownText(a), Detail: h.Detail})
		}
	}
	return findings
}

// knownText returns the text of the attachment, or "" for a held link whose container is not known.
func knownText(a endpoint.Attachment) string {
	if a.IsUnnamed() {
		return ""
	}
	return a.String()
}

// deletionRecords have one repair in common, which works off all of them.
func (c checker) deletionRecords() (findings []doctor.Finding, err error) {
	waiting, unreadable, err := deletionrecords.Look(c.m.cfg.deletionsPath())
	var first sync.Once
	var outcome error
	deleteAll := func(ctx context.Context) error {
		first.Do(func() { outcome = c.m.deletionRecords.deleteRecorded(ctx) })
		return outcome
	}
	for _, path := range waiting {
		findings = append(findings, doctor.Finding{
			Kind: kindWaiting, Subject: filepath.Base(path), Detail: "the deletion that " + path + " asks for is not done", Repair: deleteAll,
		})
	}
	for _, path := range unreadable {
		findings = append(findings, doctor.Finding{Kind: kindUnreadable, Subject: filepath.Base(path), Detail: path + " is no deletion record"})
	}
	return findings, err
}
