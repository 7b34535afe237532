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
	yamlBlock   = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
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

// TestAlertsNameMetrics wants metrics in docs/alerts.md and docs/sizing.md that exist, with labels that they have.
func TestAlertsNameMetrics(t *testing.T) {
	known := metrics(t)
	for _, page := range []string{"alerts.md", "sizing.md"} {
		uses := metricUse.FindAllStringSubmatch(read(t, root+"/docs/"+page), -1)
		if len(uses) == 0 {
			t.Errorf("docs/%s names no metric", page)
		}
		for _, use := range uses {
			labels, ok := known[use[1]]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
				if base, cut := strings.CutSuffix(use[1], suffix); cut && !ok {
					labels, ok = known[base]
				}
			}
			if !ok {
				t.Errorf("docs/%s names %s, which docs/reference/metrics.md lacks", page, use[1])
			}
			for _, label := range selector.FindAllStringSubmatch(use[2], -1) {
				if !slices.Contains(labels, label[1]) {
					t.Errorf("docs/%s selects by the label %s of %s, which it lacks", page, label[1], use[1])
				}
			}
		}
	}
}

// TestAlertRules reads the rules of docs/alerts.md, and compares them with the tables of the page.
func TestAlertRules(t *testing.T) {
	page := read(t, root+"/docs/alerts.md")
	block := yamlBlock.FindStringSubmatch(page)
	if block == nil {
		t.Fatal("docs/alerts.md has no rules")
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(block[1]), &rules); err != nil || len(rules.Groups) != 1 {
		t.Fatalf("%d groups of rules, want 1: %v", len(rules.Groups), err)
	}
	urgent := ""
	for _, r := range rules.Groups[0].Rules {
		if r.Expr == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s has no expression or summary", r.Alert)
		}
		if !strings.Contains(page, "| `"+r.Alert+"` | "+r.Labels["severity"]+" |") {
			t.Errorf("the table of docs/alerts.md lacks %s with severity %s", r.Alert, r.Labels["severity"])
		}
		if r.Alert == "PorinUrgentFinding" {
			urgent = r.Expr
		}
	}
	if rows := strings.Count(page, "| `Porin"); rows != len(rules.Groups[0].Rules) {
		t.Errorf("the table has %d alerts, the rules %d", rows, len(rules.Groups[0].Rules))
	}
	_, kinds, _ := strings.Cut(urgent, `kind=~"`)
	kinds, _, _ = strings.Cut(kinds, `"`)
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
