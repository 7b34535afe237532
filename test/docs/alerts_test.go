package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	metricUse   = regexp.MustCompile(`\b(porin_[a-z0-9_]+)(\{[^}]*\})?`)
	selector    = regexp.MustCompile(`([a-z]+)[!=]~?"`)
	metricRow   = regexp.MustCompile("(?m)^\\| `(porin_[a-z0-9_]+)` \\| ([^|]*) \\|")
	findingKind = regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)`[^|]*\\| [a-z]+ \\|")
)

// metrics returns the labels of each metric of docs/reference/metrics.md.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(read(t, root+"/docs/reference/metrics.md"), -1) {
		known[row[1]] = strings.Split(strings.TrimSpace(row[2]), ", ")
	}
	if len(known) == 0 {
		t.Fatal("docs/reference/metrics.md has no metrics")
	}
	return known
}

// alerts are the rules for Prometheus.
const alerts = "deploy/chart/files/alerts.yaml"

// TestAlertsNameMetrics wants metrics in rules, dashboard and pages that exist, with labels that they have.
func TestAlertsNameMetrics(t *testing.T) {
	known := metrics(t)
	for _, page := range []string{alerts, "deploy/chart/files/dashboard.json", "docs/alerts.md", "docs/sizing.md"} {
		uses := metricUse.FindAllStringSubmatch(strings.ReplaceAll(read(t, root+"/"+page), `\"`, `"`), -1)
		if len(uses) == 0 {
			t.Errorf("%s names no metric", page)
		}
		for _, use := range uses {
			labels, ok := known[use[1]]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
				if base, cut := strings.CutSuffix(use[1], suffix); cut && !ok {
					labels, ok = known[base]
				}
			}
			if !ok {
				t.Errorf("%s names %s, which docs/reference/metrics.md lacks", page, use[1])
			}
			for _, label := range selector.FindAllStringSubmatch(use[2], -1) {
				if !slices.Contains(labels, label[1]) {
					t.Errorf("%s selects by the label %s of %s, which it lacks", page, label[1], use[1])
				}
			}
		}
	}
}

// TestAlertRules compares the rules with the tables of docs/alerts.md.
func TestAlertRules(t *testing.T) {
	page := read(t, root+"/docs/alerts.md")
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, root+"/"+alerts)), &rules); err != nil || len(rules.Groups) != 1 {
		t.Fatalf("%d groups of rules, want 1: %v", len(rules.Groups), err)
	}
	urgent, others := "", ""
	for _, r := range rules.Groups[0].Rules {
		if r.Expr == "" || r.Annotations["summary"] == "" || r.Annotations["runbook_url"] == "" {
			t.Errorf("%s has no expression, summary or link", r.Alert)
		}
		if !strings.Contains(page, "| `"+r.Alert+"` | "+r.Labels["severity"]+" |") {
			t.Errorf("the table of docs/alerts.md lacks %s with severity %s", r.Alert, r.Labels["severity"])
		}
		if r.Alert == "PorinUrgentFinding" {
			urgent = r.Expr
		}
		if r.Alert == "PorinFinding" {
			others = r.Expr
		}
	}
	if rows := strings.Count(page, "| `Porin"); rows != len(rules.Groups[0].Rules) {
		t.Errorf("the table has %d alerts, the rules %d", rows, len(rules.Groups[0].Rules))
	}
	_, kinds, _ := strings.Cut(urgent, `kind=~"`)
	kinds, _, _ = strings.Cut(kinds, `"`)
	if !strings.Contains(others, `kind!~"`+kinds+"|") {
		t.Error("PorinFinding alerts on urgent findings, too")
	}
	known := findingKind.FindAllStringSubmatch(read(t, root+"/docs/reference/findings.md"), -1)
	for kind := range strings.SplitSeq(kinds, "|") {
		if !slices.ContainsFunc(known, func(row []string) bool { return row[1] == kind }) {
			t.Errorf("docs/reference/findings.md lacks %s", kind)
		}
		if _, table, _ := strings.Cut(page, "## Urgent findings"); !strings.Contains(table, "`"+kind+"`") {
			t.Errorf("the table of urgent findings lacks %s", kind)
		}
	}
}
