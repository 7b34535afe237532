package main

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/fx"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/testutil/reference"
)

func TestAgentReference(t *testing.T) {
	cfg := DefaultConfig()
	cfg.NodeName = "the host name"
	fs := pflag.NewFlagSet("porin-agent", pflag.ContinueOnError)
	fs.SortFlags = false
	cfg.Flags(fs)
	rows := [][]string{{"`--config` file", "", "YAML file of the other flags' names"}}
	fs.VisitAll(func(f *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(f)
		rows = append(rows, []string{strings.TrimSpace("`--" + f.Name + "` " + kind), reference.Code(strings.Trim(f.DefValue, "[]")), usage})
	})
	text, _, _ := strings.Cut(usage, "\nFlags:")
	reference.Check(t, "agent.md", "# porin-agent\n\n```\n"+text+"```\n\n"+
		"The exit code is 0 after SIGTERM or SIGINT, and 1 when the agent could not start, or a cell gave up; its log says why.\n\n"+
		reference.Table([]string{"flag", "default", "meaning"}, rows))
}

// contributed is what cells contribute to the pages of the reference.
type contributed struct {
	fx.In

	Collectors []prometheus.Collector `group:"metrics.collectors"`
	Checkers   []doctor.Checker       `group:"doctor.checkers"`
}

// contributions builds the agent in the mode that has all cells, with the proxy within and with one in a process of its
// own. It starts nothing.
func contributions(t *testing.T) (c contributed) {
	t.Helper()
	for _, mode := range []string{control.ModeInternal, control.ModeExternal} {
		cfg := testConfig(t)
		cfg.Proxy.Mode = mode
		cfg.Kubernetes.Kubeconfig = kubernetestest.Kubeconfig(t, "https://192.0.2.1:6443")
		app := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet, fx.Invoke(func(all contributed) {
			c.Collectors, c.Checkers = append(c.Collectors, all.Collectors...), append(c.Checkers, all.Checkers...)
		}))
		if err := app.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// distinct sorts rows, and leaves out what comes twice.
func distinct(rows [][]string, compare func(a, b []string) int) [][]string {
	slices.SortStableFunc(rows, compare)
	seen := map[string]bool{}
	return slices.DeleteFunc(rows, func(row []string) bool {
		text := strings.Join(row, "|")
		again := seen[text]
		seen[text] = true
		return again
	})
}

var descText = regexp.MustCompile(`^Desc{fqName: "(.*)", help: "(.*)", unit: "", constLabels: {}, variableLabels: {(.*)}}$`)

func TestMetricsReference(t *testing.T) {
	var rows [][]string
	for _, collector := range contributions(t).Collectors {
		described := make(chan *prometheus.Desc)
		go func() { defer close(described); collector.Describe(described) }()
		for desc := range described {
			parts := descText.FindStringSubmatch(desc.String())
			if parts == nil {
				t.Fatalf("prometheus has another form now: %s", desc)
			}
			rows = append(rows, []string{reference.Code(parts[1]), strings.ReplaceAll(parts[3], ",", ", "), parts[2]})
		}
	}
	rows = distinct(rows, slices.Compare)
	reference.Check(t, "metrics.md", `# Metrics

`+"`GET /metrics` on `--metrics-address`"+`, in Prometheus' format, beside the metrics of the Go runtime and of the process. A name that ends in
`+"`_total`"+` is a counter. What something took is a histogram (`+"`_bucket`, `_sum`, `_count`"+`). All others are gauges.

`+reference.Table([]string{"metric", "labels", "meaning"}, rows))
}

func TestFindingsReference(t *testing.T) {
	var rows [][]string
	for _, checker := range contributions(t).Checkers {
		for _, kind := range checker.Kinds() {
			name := reference.Code(kind.Name)
			if kind.Note {
				name += " (note)"
			}
			rows = append(rows, []string{name, checker.Owner(), kind.Meaning, kind.Repair})
		}
	}
	rows = distinct(rows, func(a, b []string) int { return strings.Compare(a[1], b[1]) })
	reference.Check(t, "findings.md", `# Findings of the doctor

What `+"`porin doctor` and `porin ipam check`"+` can find. "Repair" is what the agent does when two examinations in a row have found the
same, or at once with `+"`--repair`"+`; or else what a person has to do. A note is as it may be, and worth knowing: it is not repaired, and
not counted in `+"`porin_doctor_findings`"+`.

`+reference.Table([]string{"kind", "owner", "meaning", "repair"}, rows))
}
