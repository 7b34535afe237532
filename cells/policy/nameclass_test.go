package policy

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

func TestNameSets(t *testing.T) {
	for _, row := range []struct {
		name  string
		rules []model.DNSRule
		want  [][]int
	}{
		{"none", nil, nil},
		{"names", []model.DNSRule{{Name: "a.example"}, {Name: "b.example"}}, [][]int{{0}, {1}}},
		{"a name and its patterns", []model.DNSRule{{Name: "a.example"}, {Pattern: "*.example"}, {Pattern: "*"}}, [][]int{{0, 1, 2}, {1, 2}, {2}}},
		{"patterns that meet", []model.DNSRule{{Pattern: "a*.example"}, {Pattern: "*b.example"}}, [][]int{{0}, {1}, {0, 1}}},
		{"patterns that meet in two labels", []model.DNSRule{{Pattern: "x*.b*"}, {Pattern: "*y.*c"}}, [][]int{{0}, {1}, {0, 1}}},
		{"patterns that do not", []model.DNSRule{{Pattern: "a*.example"}, {Pattern: "b*.example"}}, [][]int{{0}, {1}}},
		{"names below", []model.DNSRule{{Pattern: "**.example"}, {Pattern: "*.a.example"}}, [][]int{{0}, {0, 1}}},
		{"none of them is a rule", []model.DNSRule{{Pattern: "a..b"}}, nil},
	} {
		if diff := cmp.Diff(row.want, nameSets(row.rules)); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
}

// TestNameSetsOfNames: what each of the names of the oracle matches is one of the sets.
func TestNameSetsOfNames(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		rules := oracle.Domains()
		r.Shuffle(len(rules), func(i, j int) { rules[i], rules[j] = rules[j], rules[i] })
		rules = rules[:1+r.IntN(len(rules))]
		sets := nameSets(rules)
		for _, name := range oracle.DomainNames() {
			var want []int
			for i, rule := range rules {
				if oracle.NameMatches(rule, name) {
					want = append(want, i)
				}
			}
			if len(want) > 0 && !slices.ContainsFunc(sets, func(set []int) bool { return slices.Equal(set, want) }) {
				t.Errorf("%s is matched by %v of %+v, which is none of %v", name, want, rules, sets)
			}
		}
	}
}

// exchange is a [NameExchange] that notes what it gets.
type exchange struct{ kept []NameClasses }

func (k *exchange) ImportNames(context.Context) {}

func (k *exchange) PublishClasses(c NameClasses, inForce uint32) {
	if n := len(k.kept); n > 0 && k.kept[n-1].Revision != inForce {
		c = NameClasses{} // which no test wants
	}
	k.kept = append(k.kept, c)
}

// TestPublishClasses: the classes are kept before each revision of the datapath, and only when they may be others.
func TestPublishClasses(t *testing.T) {
	n := startNode(t, "", newFakeKernel())
	k := &exchange{}
	n.queue.ExchangeNamesWith(k)
	n.prune(t)
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, webTo("names", "*.example"))
	snapshot := k.kept[len(k.kept)-1]
	if len(snapshot.Rules) != 1 || snapshot.Rules[0].Pattern != "*.example" || len(snapshot.Classes) != 2 || snapshot.Revision == 0 {
		t.Fatalf("%+v; want one rule, and two classes", snapshot)
	}
	text, err := json.Marshal(snapshot)
	var read NameClasses
	if err := errors.Join(err, json.Unmarshal(text, &read)); err != nil || !cmp.Equal(read, snapshot) {
		t.Errorf("%s is read as %+v, %v", text, read, err)
	}

	before := len(k.kept)
	n.attach(t, pod(2, "web"))
	if err := n.learn(t, web, "www.example", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if len(k.kept) != before {
		t.Errorf("an address of a class that is there is told as a change: %+v", k.kept[before:])
	}
	n.put(t, webTo("others", "*.other"))
	if last := k.kept[len(k.kept)-1]; len(k.kept) != before+1 || len(last.Rules) != 2 {
		t.Errorf("another rule: %+v", k.kept[before:])
	}
}
