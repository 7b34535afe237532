package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	"porin.dev/porin/cells/policy/model"
)

// ReadObject reads one policy as the API server has it, which no node can refuse. The faults are its parts that are not
// known here. A rule with such a part lets nothing through: if it accepts it matches nothing, else it denies
// everything. With a fault elsewhere the policy denies everything to the pods that it selects, or to all that it may
// select if the fault is in the selector.
func ReadObject(data []byte) (Manifest, []error) {
	policy, faults := read(data)
	text, err := canonical(data)
	if err != nil {
		return Manifest{}, append(faults, err)
	}
	if len(faults) > 0 {
		policy = narrowParts(policy, data, faults)
	}
	return Manifest{policy, text}, faults
}

// ruleOf finds the rule that a field of a specification is of: "ingressDeny[2]".
var ruleOf = regexp.MustCompile(`^((?:ingress|egress)(?:Deny)?\[\d+\])`)

// selectors say whether a specification of Cilium's kinds is for pods or for nodes.
type selectors struct {
	EndpointSelector json.RawMessage `json:"endpointSelector"`
	NodeSelector     json.RawMessage `json:"nodeSelector"`
}

// narrowParts narrows each of an object's policies by the faults in its specification, and elsewhere. A specification
// for nodes concerns no pod: nothing is in force of it.
func narrowParts(policy model.Policy, data []byte, faults []error) model.Policy {
	var object struct {
		Spec  selectors   `json:"spec"`
		Specs []selectors `json:"specs"`
	}
	_ = strictjson.UnmarshalCaseSensitivePreserveInts(data, &object) // read has reported it
	parts := policy.Parts()
	for i := range parts {
		of, at := object.Spec, "spec."
		if i > 0 || len(object.Specs) > 0 {
			of, at = selectors{}, fmt.Sprintf("specs[%d].", i)
			if i < len(object.Specs) {
				of = object.Specs[i]
			}
		}
		parts[i] = narrow(parts[i], data, at, faults)
		if present(of.NodeSelector) && !present(of.EndpointSelector) {
			parts[i].Egress, parts[i].Ingress = nil, nil
		}
	}
	policy = parts[0]
	policy.More = append(policy.More, parts[1:]...)
	return policy
}

// narrow is the policy without what its faulty parts might let through. Its specification is at a path.
func narrow(policy model.Policy, data []byte, at string, faults []error) model.Policy {
	broken := map[string]bool{} // rules; true: its action may be to deny
	whole, subject := policy.ID.Name == "", policy.ID.Name == ""
	for _, fault := range faults {
		path := pathOf(fault)
		field, own := strings.CutPrefix(path, at)
		rule := ruleOf.FindStringSubmatch(field)
		switch {
		case !own && strings.HasPrefix(path, "specs[") && strings.HasPrefix(at, "specs["): // of another specification
		case own && rule != nil:
			broken[rule[1]] = broken[rule[1]] || strings.HasSuffix(path, "].action")
		case strings.HasPrefix(path, "metadata.annotations"):
			policy.Audit = false
		default:
			whole = true
			subject = subject || !own || strings.HasPrefix(field, "podSelector") || strings.HasPrefix(field, "endpointSelector") ||
				strings.HasPrefix(field, "subject") || strings.HasPrefix(field, "nodeSelector")
		}
	}
	if whole {
		return denyAll(policy, data, subject)
	}
	for _, d := range []model.Direction{model.Egress, model.Ingress} {
		part := policy.Part(d)
		if part == nil {
			continue
		}
		kept := model.Rules{} // without broken rules that accept; others deny everything
		for i, r := range *part {
			origin := fmt.Sprintf("%s[%d]", d, i)
			if policy.ID.Kind == model.KindCiliumNetworkPolicy || policy.ID.Kind == model.KindCiliumClusterwideNetworkPolicy {
				origin = strings.TrimPrefix(r.Name, at) // the list of rules, when there are several
				origin = origin[:strings.IndexByte(origin, ']')+1]
			}
			switch mayDeny, isBroken := broken[origin]; {
			case !isBroken:
				kept = append(kept, r)
			case mayDeny || r.Action != model.Accept:
				kept = append(kept, denyEverything(r.Name))
			}
		}
		*part = kept
	}
	return policy
}

// pathOf is the field that a fault is about, or "".
func pathOf(fault error) string {
	if invalid, ok := errors.AsType[*field.Error](fault); ok {
		return invalid.Field
	}
	_, rest, _ := strings.Cut(fault.Error(), `field "`) // of strict decoding
	path, _, _ := strings.Cut(rest, `"`)
	return path
}

func denyEverything(name string) model.Rule {
	return model.Rule{Name: name, Action: model.Deny, Peers: []model.Peer{{Any: true}}}
}

// denyAll is what is left of a policy when only its ID is sure, and its subject if that is not the fault.
func denyAll(policy model.Policy, data []byte, subject bool) model.Policy {
	var object struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
	}
	_ = json.Unmarshal(data, &object) // without a name it has no owner
	policy.ID = model.PolicyID{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, Part: policy.ID.Part}
	if subject {
		policy.Subject = model.Pods{Namespace: object.Namespace}
	}
	rules := model.Rules{}
	switch object.Kind {
	case model.KindNetworkPolicy, model.KindCiliumNetworkPolicy, model.KindCiliumClusterwideNetworkPolicy:
		policy.Tier = model.TierNetworkPolicy
	default:
		rules = model.Rules{denyEverything("")}
	}
	policy.Egress, policy.Ingress, policy.EgressOpen, policy.IngressOpen, policy.Audit = &rules, &rules, false, false, false
	return policy
}
