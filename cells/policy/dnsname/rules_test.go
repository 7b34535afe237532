package dnsname

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

func TestRulesMatch(t *testing.T) {
	for _, tt := range []struct {
		rule    model.DNSRule
		match   string
		noMatch string
	}{
		{model.DNSRule{Name: "example.com"}, "example.com", "www.example.com com example.org example.comx xexample.com ."},
		{model.DNSRule{Name: "Example.COM."}, "example.com", "www.example.com"},
		{model.DNSRule{Pattern: "example.com"}, "example.com", "www.example.com"},
		{model.DNSRule{Pattern: "*"}, `. com a.b.c a\046b.com *.com`, ""},
		{model.DNSRule{Pattern: "*."}, `. com a.b.c`, ""},
		{model.DNSRule{Pattern: "*.example.com"}, "a.example.com a-b_9.example.com", `example.com a.b.example.com a\046b.example.com *.example.com a.example.comx`},
		{model.DNSRule{Pattern: "*.*"}, "a.b", "a a.b.c ."},
		{model.DNSRule{Pattern: "w*w.example.*"}, "ww.example.com www.example.org w-1-w.example.net", "w.example.com wwx.example.com www.example www.example.co.uk"},
		{model.DNSRule{Pattern: "*a*b*"}, "ab xaxbx aab abb", `ba a b a\032b ab.ab`},
		{model.DNSRule{Pattern: "**.example.com"}, "a.example.com a.b.example.com a.b.c.example.com", `example.com aexample.com a\046b.example.com`},
		{model.DNSRule{Pattern: "**.*.com"}, "a.b.com a.b.c.com", "b.com com"},
		{model.DNSRule{Pattern: "x.**.com"}, "x.a.com x.ab.com", "x.a.b.com x.com"},
		{model.DNSRule{Pattern: "**"}, "a", "a.b ."},
	} {
		rules, err := Compile([]model.DNSRule{tt.rule})
		if err != nil {
			t.Errorf("%+v: %s", tt.rule, err)
			continue
		}
		for name := range strings.FieldsSeq(tt.match) {
			if !rules.Match(name) {
				t.Errorf("%+v does not match %s", tt.rule, name)
			}
		}
		for name := range strings.FieldsSeq(tt.noMatch) {
			if rules.Match(name) {
				t.Errorf("%+v matches %s", tt.rule, name)
			}
		}
	}
	if (*Rules)(nil).Match("a") {
		t.Error("no rules match a name")
	}
	if none, err := Compile(nil); err != nil || none.Match("a") || none.Match(".") {
		t.Errorf("an empty list matches a name: %v", err)
	}
}

func TestCompileFaults(t *testing.T) {
	bad := []model.DNSRule{
		{},
		{Name: "a", Pattern: "a"},
		{Name: "."},
		{Name: "*.com"},
		{Name: "a..b"},
		{Name: ".a"},
		{Name: `a\.b`},
		{Name: "a b"},
		{Name: "bücher.example"},
		{Name: strings.Repeat("a", 64)},
		{Name: strings.Repeat("a.", 127) + "a"},
		{Pattern: "**.a..b"},
		{Pattern: "[a].com"},
		{Pattern: "a.**.."},
	}
	for _, rule := range bad {
		if _, err := Compile([]model.DNSRule{{Name: "good"}, rule}); err == nil || !strings.HasPrefix(err.Error(), "DNS rule 1: ") {
			t.Errorf("%+v: %v, want an error about rule 1", rule, err)
		}
	}
	_, err := Compile(bad)
	if lines := strings.Count(err.Error(), "DNS rule"); lines != len(bad) {
		t.Errorf("%d faults are reported, want all %d", lines, len(bad))
	}
	if _, err := Compile([]model.DNSRule{{Name: strings.Repeat("a.", 126) + "a"}}); err != nil {
		t.Errorf("the longest name: %s", err)
	}
}

// expression is a rule as a regular expression, word by word as package model describes it.
func expression(rule model.DNSRule) *regexp.Regexp {
	const character = "[-a-z0-9_]"
	pattern, prefix := rule.Pattern, ""
	switch {
	case rule.Name != "":
		return regexp.MustCompile("^" + regexp.QuoteMeta(rule.Name) + "$")
	case pattern == "*":
		return regexp.MustCompile(`^.*$`)
	case strings.HasPrefix(pattern, "**."):
		prefix, pattern = "("+character+`+\.)+`, pattern[3:]
	}
	var parts []string
	for part := range strings.SplitSeq(pattern, "*") {
		parts = append(parts, regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("^" + prefix + strings.Join(parts, character+"*") + "$")
}

func TestRulesRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string, labels, length int) string {
		var all []string
		for range 1 + r.IntN(labels) {
			label := make([]byte, 1+r.IntN(length))
			for i := range label {
				label[i] = alphabet[r.IntN(len(alphabet))]
			}
			all = append(all, string(label))
		}
		return strings.Join(all, ".")
	}
	matched := 0
	for range 3000 {
		var rules []model.DNSRule
		var expressions []*regexp.Regexp
		for range 1 + r.IntN(6) {
			rule := model.DNSRule{Pattern: text("ab*", 3, 4)}
			switch r.IntN(4) {
			case 0:
				rule = model.DNSRule{Name: text("ab", 3, 2)}
			case 1:
				rule.Pattern = "**." + rule.Pattern
			}
			rules, expressions = append(rules, rule), append(expressions, expression(rule))
		}
		compiled, err := Compile(rules)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			name, want := text("aaabbb-*!", 4, 4), false
			for _, e := range expressions {
				want = want || e.MatchString(name)
			}
			if want {
				matched++
			}
			if got := compiled.Match(name); got != want {
				t.Fatalf("%+v match %s: %t, want %t", rules, name, got, want)
			}
		}
	}
	if matched < 10000 {
		t.Errorf("only %d names of 150000 matched", matched)
	}
}

func BenchmarkMatch(b *testing.B) {
	var all []model.DNSRule
	for _, zone := range []string{"com", "org", "net", "example.com", "svc.cluster.local"} {
		for _, p := range []string{"*.", "**.", "a*b.", "*-x-*.", "www.*."} {
			all = append(all, model.DNSRule{Pattern: p + zone}, model.DNSRule{Name: "exact." + zone})
		}
	}
	rules, err := Compile(all)
	if err != nil {
		b.Fatal(err)
	}
	for name, host := range map[string]string{"exact": "exact.example.com", "pattern": "web-x-1.svc.cluster.local", "none": "a.b.example.de"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rules.Match(host)
			}
		})
	}
}
