package doctor_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/server"
)

func TestModule(t *testing.T) {
	var (
		d        *doctor.Doctor
		exporter *metrics.Exporter
		routes   = doctortest.New("routes", "route-missing")
		links    = doctortest.New("links", "link-orphan")
		socket   = filepath.Join(t.TempDir(), "agent.sock")
	)
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		doctor.Module(doctor.DefaultConfig()),
		doctor.Check(func() *doctortest.Checker { return routes }),
		doctor.Check(func() *doctortest.Checker { return links }),
		server.Module(server.Config{Socket: socket}, server.Info{}),
		metrics.Module(metrics.DefaultConfig()),
		fx.Populate(&d, &exporter),
	)
	app.RequireStart()
	defer app.RequireStop()
	routes.Break("por3", "", nil)
	routes.Break("por5", "", nil)
	links.Fail(func(context.Context) error { return errors.New("broken pipe") })
	answer, err := d.Examine(t.Context(), doctor.Scope{})
	if err != nil || len(answer.Findings) != 2 || len(answer.Errors) != 1 {
		t.Errorf("answer %+v, %v", answer, err)
	}
	api := client.New(socket)
	defer api.Close()
	if status, err := api.Status(t.Context()); err != nil || status.Findings.Count != 2 || len(status.Findings.First) != 2 || status.Findings.First[1].Subject != "por5" {
		t.Errorf("findings of the status: %+v, %v", status.Findings, err)
	}
	want := `
# HELP porin_doctor_findings Disagreements that are known, by kind.
# TYPE porin_doctor_findings gauge
porin_doctor_findings{kind="link-orphan",owner="links"} 0
porin_doctor_findings{kind="route-missing",owner="routes"} 2
`
	if err := testutil.GatherAndCompare(exporter.Gatherer(), strings.NewReader(want), "porin_doctor_findings"); err != nil {
		t.Error(err)
	}
	for name, series := range map[string]int{"porin_doctor_repairs_total": 4, "porin_doctor_examination_seconds": 1} {
		if n, err := testutil.GatherAndCount(exporter.Gatherer(), name); n != series || err != nil {
			t.Errorf("%s: %d series, want %d (%v)", name, n, series, err)
		}
	}
}
