package kubernetes

import (
	"bufio"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// group is a heading of upstream.txt with its tests.
type group struct {
	name  string
	count int
	run   bool     // the others are left out, for the reason that is their name
	only  []string // clusters that run it
	tests []string
}

var heading = regexp.MustCompile(`^(run|leave out) (\d+)(?: only (.*?))?: (.*)$`)

// readGroups reads a list such as upstream.txt: headings, each with its tests on indented lines.
func readGroups(t *testing.T, list string) []*group {
	t.Helper()
	f, err := os.Open(list)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var groups []*group
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch match := heading.FindStringSubmatch(line); {
		case line == "" || strings.HasPrefix(line, "#"):
		case match != nil:
			count, _ := strconv.Atoi(match[2])
			groups = append(groups, &group{name: match[4], count: count, run: match[1] == "run", only: strings.Fields(match[3])})
		case strings.HasPrefix(line, "\t") && len(groups) > 0:
			last := groups[len(groups)-1]
			last.tests = append(last.tests, line[1:])
		default:
			t.Fatalf("%s: %q is neither a heading nor a test", list, line)
		}
	}
	return groups
}

// fits reports whether the cluster runs the group. Conditions are dual, nodes (more than one), node (a single one, or
// FULL=1), iptables, last (the last cluster of a run, see run.sh).
func (g *group) fits(c *cluster) bool {
	has := map[string]bool{
		"dual": c.dual, "nodes": len(c.nodes) > 1, "node": len(c.nodes) == 1 || testutil.Full(),
		"iptables": os.Getenv("PROXY") != "nftables", "last": os.Getenv("LAST") != "no",
	}
	return g.run && !slices.ContainsFunc(g.only, func(condition string) bool { return !has[condition] })
}

// chosen returns the tests of a list that the cluster runs.
func (c *cluster) chosen(t *testing.T, list string) (tests []string) {
	t.Helper()
	for _, g := range readGroups(t, list) {
		if g.fits(c) {
			tests = append(tests, g.tests...)
			t.Logf("%d tests: %s", len(g.tests), g.name)
		}
	}
	return tests
}

var upstreamTest = regexp.MustCompile(`(?m)^ +\S+\.go:\d+: (\[sig-network\] .*)$`)

// upstream.txt has all tests of [sig-network] that upstream has, once, and as many as its headings say.
func TestUpstreamList(t *testing.T) {
	testutil.Root(t)
	if _, err := os.Stat(binary("e2e.test")); err != nil {
		t.Skip("needs upstream's tests: make e2e-kubernetes")
	}
	out, err := exec.Command(binary("e2e.test"), "--list-tests").Output()
	if err != nil {
		t.Fatal(err)
	}
	wantList(t, "upstream.txt", upstreamTest.FindAllStringSubmatch(string(out), -1))
}

// wantList fails the test unless the list has all tests of upstream, the first group of each match, once.
func wantList(t *testing.T, list string, upstream [][]string) {
	t.Helper()
	left := make(map[string]int)
	for _, match := range upstream {
		left[match[1]]++
	}
	if len(left) == 0 {
		t.Fatal("upstream lists no test")
	}
	for _, g := range readGroups(t, list) {
		if len(g.tests) != g.count {
			t.Errorf("%q has %d tests, and its heading says %d", g.name, len(g.tests), g.count)
		}
		for _, test := range g.tests {
			if left[test] == 0 {
				t.Errorf("upstream has no such test, or it is listed twice: %s", test)
			}
			delete(left, test)
		}
	}
	for _, test := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("neither run nor left out: %s", test)
	}
}

// All tests of upstream.txt that this cluster allows pass.
func TestUpstream(t *testing.T) {
	c := porin(t)
	results := c.upstream(t, c.chosen(t, "upstream.txt"))
	for _, test := range slices.Sorted(maps.Keys(results)) {
		if result := results[test]; result.State != "passed" {
			t.Errorf("%s: %s\n%s", result.State, test, result.Failure.Message)
		}
	}
}

// Without enforcement, as with the reference plugin bridge, upstream's tests of policies fail, but for five.
func TestUpstreamWithoutEnforcement(t *testing.T) {
	if !testutil.Full() {
		t.Skip("FULL=1: six minutes that say nothing of Porin")
	}
	c := newCluster(t, "bridge")
	var tests []string
	for _, g := range readGroups(t, "upstream.txt") {
		if strings.HasPrefix(g.name, "network policies") {
			tests = append(tests, g.tests...)
		}
	}
	var passed []string
	for test, result := range c.upstream(t, tests) {
		if result.State == "passed" {
			passed = append(passed, test)
		}
	}
	if len(passed) != withoutEnforcement {
		t.Errorf("%d of %d pass without enforcement, want %d:\n%s", len(passed), len(tests), withoutEnforcement, strings.Join(passed, "\n"))
	}
}

// withoutEnforcement is the number of tests of policies that allow everything, or ask the API server alone.
const withoutEnforcement = 5

// result is a test in ginkgo's report.
type result struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

// upstream runs tests. A test that did not run has the state "skipped", with ginkgo's message, or "missing".
func (c *cluster) upstream(t *testing.T, tests []string) map[string]result {
	t.Helper()
	names := make([]string, len(tests))
	results := make(map[string]result)
	for i, test := range tests {
		names[i] = regexp.QuoteMeta(test)
		results[test] = result{State: "missing"}
	}
	dir := t.TempDir()
	cmd := exec.Command(binary("ginkgo"), "--procs=6", "--no-color", "--timeout=40m", "--focus=("+strings.Join(names, "|")+")$",
		"--json-report=report.json", "--output-dir="+dir, binary("e2e.test"), "--",
		"--provider=skeleton", "--kubeconfig="+filepath.Join(os.Getenv(envDir), "run", "admin.conf"), "--kubectl-path="+binary("kubectl"),
		"--dns-domain=cluster.local", "--num-nodes="+strconv.Itoa(len(c.nodes)))
	log, err := os.Create(filepath.Join(os.Getenv(envDir), "upstream.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	t.Logf("%d tests; %s grows by a character a test", len(tests), log.Name())
	began := time.Now()
	failed := cmd.Run()
	report, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatalf("%v, %v: see %s", failed, err, log.Name())
	}
	var suites []struct{ SpecReports []result }
	if err := json.Unmarshal(report, &suites); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, suite := range suites {
		for _, r := range suite.SpecReports {
			name := strings.Join(append(r.ContainerHierarchyTexts, r.LeafNodeText), " ")
			if _, asked := results[name]; !asked {
				continue
			}
			results[name] = r
			if r.State == "passed" {
				passed++
			}
		}
	}
	t.Logf("%d of %d tests pass, in %.0f s", passed, len(tests), time.Since(began).Seconds())
	if failed != nil {
		t.Logf("%v: %s has the details", failed, log.Name())
	}
	return results
}
