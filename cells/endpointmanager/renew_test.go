package endpointmanager

import (
	"context"
	"errors"
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// renewing is a step whose Renew fails, and that knows the latest metadata.
type renewing struct {
	*probe
	metadata string
}

var errRenew = errors.New("no such link")

func (r *renewing) Update(_ context.Context, ep endpoint.Endpoint) error {
	r.metadata = ep.Metadata
	return nil
}

func (*renewing) Renew(context.Context, endpoint.Endpoint) error { return errRenew }

// TestRenewFails: steps, record and table keep the labels from before.
func TestRenewFails(t *testing.T) {
	step := &renewing{probe: &probe{}}
	m := unstarted(t.TempDir(), step.probe)
	m.steps = endpoint.Steps{step}
	start(t, m)
	spec := specOf("c1:eth0")
	spec.Metadata = `{"labels":{"app":"web"}}`
	step.metadata = spec.Metadata
	first, err := m.Create(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	again := spec
	again.Metadata = `{"labels":{"app":"db"}}`
	if _, err := m.Create(t.Context(), again, nil); !errors.Is(err, errRenew) {
		t.Errorf("error %v, want %v", err, errRenew)
	}
	records, err := m.ledger.Attachments()
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	now, err := m.table.Get(endpoint.ByID(first.ID))
	if now != first || err != nil {
		t.Errorf("in the table %+v, error %v, want %+v", now, err, first)
	}
	for what, got := range map[string]string{"the step": step.metadata, "the ledger": records[0].Endpoint.Metadata} {
		if got != first.Metadata {
			t.Errorf("%s has %s, want %s", what, got, first.Metadata)
		}
	}
}
