package manifest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/policy/model"
)

// collectionVariable names folders of checkouts with policies, separated as in PATH.
const collectionVariable = "PORIN_POLICY_COLLECTION"

// maxRefused is the share of the policies that may have a part that is not known.
const maxRefused = 0.05

// tally counts the policies of a kind.
type tally struct {
	read, refused int
	faults        map[string][]string // the fields with a fault, and the files
}

// TestPolicyCollection reads the policies in the YAML files of checkouts, equal ones once.
func TestPolicyCollection(t *testing.T) {
	folders := os.Getenv(collectionVariable)
	if folders == "" {
		t.Skip("without " + collectionVariable)
	}
	kinds, seen, unreadable := map[string]*tally{}, map[string]bool{}, 0
	for _, folder := range filepath.SplitList(folders) {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err != nil || !entry.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, doc := range regexp.MustCompile(`(?m)^---.*$`).Split(string(data), -1) {
				if !strings.Contains(doc, "Policy") {
					continue
				}
				if _, err := yaml.YAMLToJSON([]byte(doc)); err != nil { // such as a template
					unreadable++
					continue
				}
				json, err := yaml.YAMLToJSON([]byte(fillIn(doc)))
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				count(kinds, seen, path, json)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := tally{}
	for kind, n := range kinds {
		t.Logf("%s: %d of %d refused", kind, n.refused, n.read)
		fields := []string{}
		for field := range n.faults {
			fields = append(fields, field)
		}
		slices.SortFunc(fields, func(a, b string) int { return len(n.faults[b]) - len(n.faults[a]) })
		for _, field := range fields {
			t.Logf("  %3d %s: %s", len(n.faults[field]), field, n.faults[field][0])
		}
		all.read += n.read
		all.refused += n.refused
	}
	if float64(all.refused) > maxRefused*float64(all.read) {
		t.Errorf("%d of %d refused, want at most %.0f %%", all.refused, all.read, 100*maxRefused)
	}
	t.Logf("documents that are no YAML, such as templates: %d", unreadable)
}

var (
	variable    = regexp.MustCompile(`\$\{[^}]*\}|\{\{[^}]*\}\}`)
	withDefault = regexp.MustCompile(`\$\{\w+:=([^}]*)\}`)
	wholeCIDR   = regexp.MustCompile(`(?m)(cidr: *"?)\$\{[^}]*\}("?[ }]*$)`)
)

// fillIn gives variables of templates, as ${IP_ROUTER} and {{.ExternalCIDR}}, a value that their place or name asks
// for.
func fillIn(text string) string {
	text = withDefault.ReplaceAllString(text, "$1")
	text = wholeCIDR.ReplaceAllString(text, "${1}192.0.2.0/24$2")
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		for _, known := range []struct{ part, value string }{
			{"ipToCIDR", "192.0.2.1/32"}, {"IPv6", "2001:db8::1"}, {"CIDR", "192.0.2.0/24"}, {"${IP", "192.0.2.1"}, {"DNS", "www.example.org"}, {"PORT", "8080"}, {"port", "8080"}, {"IP", "192.0.2.1"},
			{"ClusterNameLocal", thisCluster}, {"LabelKey", "key"},
		} {
			if strings.Contains(name, known.part) {
				return known.value
			}
		}
		return "x"
	})
}

func count(kinds map[string]*tally, seen map[string]bool, path string, json []byte) {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(json, &head); err != nil || !slices.Contains(model.Kinds(), head.Kind) || seen[string(json)] {
		return
	}
	seen[string(json)] = true
	n := kinds[head.Kind]
	if n == nil {
		n = &tally{faults: map[string][]string{}}
		kinds[head.Kind] = n
	}
	n.read++
	_, faults := read(bytes.Clone(json))
	if len(faults) == 0 {
		return
	}
	n.refused++
	indexes := regexp.MustCompile(`\[[^]]*\]`)
	said := map[string]bool{}
	for _, fault := range faults {
		field := indexes.ReplaceAllString(pathOf(fault), "")
		if !said[field] {
			n.faults[field] = append(n.faults[field], fmt.Sprintf("%s: %v", path, fault))
		}
		said[field] = true
	}
}
