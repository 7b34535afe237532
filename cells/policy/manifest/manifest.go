package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	yamlnode "go.yaml.in/yaml/v3"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"porin.dev/porin/cells/policy/model"
)

// Read returns the policies of all documents in data. Empty documents are passed over.
func Read(data []byte) ([]model.Policy, error) {
	manifests, err := ReadAll(data)
	var policies []model.Policy
	for _, m := range manifests {
		policies = append(policies, m.Policy)
	}
	return policies, err
}

// Manifest is a policy and its document.
type Manifest struct {
	Policy model.Policy
	JSON   json.RawMessage // the document without white space, keys in their order
}

// ReadAll is [Read] for who keeps the documents.
func ReadAll(data []byte) ([]Manifest, error) {
	docs, err := documents(data)
	if err != nil {
		return nil, err
	}
	var manifests []Manifest
	var errs []error
	first := map[model.PolicyID]string{}
	for _, doc := range docs {
		policy, faults := read(doc.json)
		where := doc.where
		if policy.ID.Name != "" {
			where += fmt.Sprintf(" (%.350s)", policy.ID) // longer than valid names are
		}
		for _, fault := range faults {
			errs = append(errs, fmt.Errorf("%s: %w", where, fault))
		}
		if before, ok := first[policy.ID]; ok && len(faults) == 0 {
			errs = append(errs, fmt.Errorf("%s: %s is already in %s", doc.where, policy.ID, before))
		} else if len(faults) == 0 {
			first[policy.ID] = doc.where
		}
		text, err := canonical(doc.json)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		manifests = append(manifests, Manifest{policy, text})
	}
	if more := len(errs) - maxFaults; more > 0 {
		errs = append(errs[:maxFaults], fmt.Errorf("and %d more", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return manifests, nil
}

// maxFaults bounds the answer: each has the name of its policy.
const maxFaults = 100

// canonical is the same text for the same document.
func canonical(data []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// read returns the policy's ID also with faults, as far as it is known.
func read(data []byte) (model.Policy, []error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(data, &head); err != nil {
		return model.Policy{}, []error{fmt.Errorf("the document is not an object: %w", err)}
	}
	switch (kind{head.APIVersion, head.Kind}) {
	case kind{networkingv1.SchemeGroupVersion.String(), model.KindNetworkPolicy}:
		return decode(data, networkPolicy)
	case kind{v1alpha2.GroupVersion.String(), model.KindClusterNetworkPolicy}:
		return decode(data, clusterNetworkPolicy)
	case kind{v1alpha1.GroupVersion.String(), model.KindAdminNetworkPolicy}:
		return decode(data, adminNetworkPolicy)
	case kind{v1alpha1.GroupVersion.String(), model.KindBaselineAdminNetworkPolicy}:
		return decode(data, baselineAdminNetworkPolicy)
	case kind{ciliumVersion, model.KindCiliumNetworkPolicy}:
		return decode(data, ciliumNetworkPolicy)
	case kind{ciliumVersion, model.KindCiliumClusterwideNetworkPolicy}:
		return decode(data, ciliumClusterwideNetworkPolicy)
	}
	return model.Policy{}, []error{fmt.Errorf("apiVersion %q, kind %q: not a kind of policy that is known here: want NetworkPolicy of networking.k8s.io/v1, ClusterNetworkPolicy, AdminNetworkPolicy or BaselineAdminNetworkPolicy of policy.networking.k8s.io, CiliumNetworkPolicy or CiliumClusterwideNetworkPolicy of cilium.io/v2", head.APIVersion, head.Kind)}
}

type kind struct{ version, name string }

// maxStrict is how many fields the strict decoder reports at the most.
const maxStrict = 100

// errMoreFields names no field, so the policy denies everything: see narrowParts.
var errMoreFields = errors.New("there may be more fields that are not known")

func decode[T any](data []byte, convert func(*T, *faults) model.Policy) (model.Policy, []error) {
	object := new(T)
	strict, err := strictjson.UnmarshalStrict(data, object)
	if err != nil {
		return model.Policy{}, []error{explainType(data, err)}
	}
	if len(strict) >= maxStrict {
		strict = append(strict, errMoreFields)
	}
	found := &faults{}
	if err := json.Unmarshal(data, &found.raw); err != nil {
		return model.Policy{}, []error{err}
	}
	policy := convert(object, found)
	policy.Audit = found.audit()
	for i := range policy.More {
		policy.More[i].Audit = policy.Audit
	}
	for _, err := range found.list {
		strict = append(strict, err)
	}
	return policy, strict
}

// faults collects what is wrong with one document.
type faults struct {
	list field.ErrorList
	raw  map[string]any // the document, to see whether a field is missing or has its zero value
	// expressions is how many instructions the document's expressions have so far.
	expressions int
}

func (f *faults) add(errs ...*field.Error) { f.list = append(f.list, errs...) }

// has reports whether the document has a field, by its names from the top.
func (f *faults) has(names ...string) bool {
	var value any = f.raw
	for _, name := range names {
		object, _ := value.(map[string]any)
		if value = object[name]; value == nil {
			return false
		}
	}
	return true
}

// AuditAnnotation puts a policy into audit, with the value "true".
const AuditAnnotation = "porin.dev/audit"

func (f *faults) audit() bool {
	metadata, _ := f.raw["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, given := annotations[AuditAnnotation]
	if given && value != "true" {
		f.add(field.NotSupported(field.NewPath("metadata", "annotations").Key(AuditAnnotation), value, []string{"true"}))
	}
	return given
}

func (f *faults) checkName(meta metav1.ObjectMeta, kindName string) model.PolicyID {
	path := field.NewPath("metadata")
	if meta.Name == "" {
		f.add(field.Required(path.Child("name"), ""))
	} else {
		for _, text := range validation.IsDNS1123Subdomain(meta.Name) {
			f.add(field.Invalid(path.Child("name"), meta.Name, text))
		}
	}
	id := model.PolicyID{Kind: kindName, Name: meta.Name}
	switch {
	case !model.Namespaced(kindName):
		if meta.Namespace != "" {
			f.add(field.Forbidden(path.Child("namespace"), "the kind has no namespace"))
		}
	case meta.Namespace == "":
		id.Namespace = metav1.NamespaceDefault
	default:
		id.Namespace = meta.Namespace
		for _, text := range validation.IsDNS1123Label(meta.Namespace) {
			f.add(field.Invalid(path.Child("namespace"), meta.Namespace, text))
		}
	}
	return id
}

type document struct {
	where string // "document 2, line 14"
	json  []byte
}

func documents(data []byte) (docs []document, err error) {
	trimmed := bytes.TrimSpace(data)
	if len(trimmed) > 0 && trimmed[0] == '{' {
		decoder := json.NewDecoder(bytes.NewReader(trimmed))
		for n := 1; ; n++ {
			var raw json.RawMessage
			where := fmt.Sprintf("document %d", n)
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				return docs, nil
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", where, err)
			}
			if docs, err = appendItems(docs, document{where, raw}); err != nil {
				return nil, err
			}
		}
	}
	decoder := yamlnode.NewDecoder(bytes.NewReader(data))
	for n := 1; ; n++ {
		var node yamlnode.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		where := fmt.Sprintf("document %d", n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if len(node.Content) == 1 && node.Content[0].Tag == "!!null" {
			continue
		}
		where += fmt.Sprintf(", line %d", node.Content[0].Line)
		if err := errors.Join(repeatedKeys(&node)...); err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		text, err := yamlnode.Marshal(&node)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		converted, err := yaml.YAMLToJSON(text) // by the rules of YAML 1.1, as kubectl does
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		if docs, err = appendItems(docs, document{where, converted}); err != nil {
			return nil, err
		}
	}
}

func repeatedKeys(node *yamlnode.Node) []error {
	var errs []error
	seen := map[string]bool{}
	for i, child := range node.Content {
		if node.Kind == yamlnode.MappingNode && i%2 == 0 {
			if seen[child.Value] {
				errs = append(errs, fmt.Errorf("line %d: %q is there twice", child.Line, child.Value))
			}
			seen[child.Value] = true
		}
		errs = append(errs, repeatedKeys(child)...)
	}
	return errs
}

// appendItems appends the document, or the items of a List.
func appendItems(docs []document, doc document) ([]document, error) {
	var list struct {
		metav1.TypeMeta
		Metadata metav1.ListMeta   `json:"metadata"`
		Items    []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(doc.json, &list.TypeMeta); err != nil || list.APIVersion != "v1" || list.Kind != "List" {
		return append(docs, doc), nil // read names the kind
	}
	strict, err := strictjson.UnmarshalStrict(doc.json, &list)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("%s: %w", doc.where, err)
	}
	for i, item := range list.Items {
		docs = append(docs, document{fmt.Sprintf("%s, item %d", doc.where, i+1), item})
	}
	return docs, nil
}
