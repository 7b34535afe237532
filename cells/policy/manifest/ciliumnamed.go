package manifest

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

// ciliumService is an entry of toServices: a Service by its name, or all of a namespace with some labels.
type ciliumService struct {
	K8sService *struct {
		ServiceName string `json:"serviceName"`
		Namespace   string `json:"namespace"`
	} `json:"k8sService"`
	K8sServiceSelector *struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Namespace string               `json:"namespace"`
	} `json:"k8sServiceSelector"`
}

func named(r model.Reference) model.Peer { return model.Peer{Named: &model.Named{Reference: r}} }

func (f *faults) ciliumService(path *field.Path, own string, s ciliumService) (peers []model.Peer) {
	f.oneOf(path, map[string]bool{"k8sService": s.K8sService != nil, "k8sServiceSelector": s.K8sServiceSelector != nil})
	if by := s.K8sService; by != nil {
		at := path.Child("k8sService")
		for _, text := range validation.IsDNS1035Label(by.ServiceName) {
			f.add(field.Invalid(at.Child("serviceName"), by.ServiceName, text))
		}
		peers = append(peers, named(model.Reference{Kind: model.Service, Namespace: f.namespaceOf(at, by.Namespace, own), Name: by.ServiceName}))
	}
	if by := s.K8sServiceSelector; by != nil {
		at := path.Child("k8sServiceSelector")
		peers = append(peers, named(model.Reference{Kind: model.Service, Namespace: f.namespaceOf(at, by.Namespace, own), Labels: f.labelsOf(at.Child("selector"), by.Selector)}))
	}
	return peers
}

// namespaceOf is a Service's namespace: by default the policy's.
func (f *faults) namespaceOf(path *field.Path, given, own string) string {
	if given == "" {
		given = own
	}
	if given == "" {
		f.add(field.Required(path.Child("namespace"), "no agent watches the Services of all namespaces"))
		return given
	}
	for _, text := range validation.IsDNS1123Label(given) {
		f.add(field.Invalid(path.Child("namespace"), given, text))
	}
	return given
}

// labelsOf is a selector as the API server takes it. An empty one would have all objects watched.
func (f *faults) labelsOf(path *field.Path, s metav1.LabelSelector) string {
	plain := metav1.LabelSelector{}
	for key, value := range s.MatchLabels {
		metav1.AddLabelToSelector(&plain, plainKey(key), value)
	}
	for _, e := range s.MatchExpressions {
		e.Key = plainKey(e.Key)
		plain.MatchExpressions = append(plain.MatchExpressions, e)
	}
	f.selector(path, plain)
	if len(plain.MatchLabels)+len(plain.MatchExpressions) == 0 {
		f.add(field.Required(path, "an empty one selects everything"))
	}
	return metav1.FormatLabelSelector(&plain)
}

func plainKey(key string) string { return strings.TrimPrefix(strings.TrimPrefix(key, "k8s:"), "any:") }

// ciliumCIDRSet has a CIDR, or the name or labels of a CiliumCIDRGroup.
func (f *faults) ciliumCIDRSet(path *field.Path, s ciliumCIDR) []model.Peer {
	if s.CIDRGroupRef == "" && s.CIDRGroupSelector == nil {
		block := f.block(path, s.CIDR, s.Except)
		block.OutsideOnly = true
		return []model.Peer{{Block: block}}
	}
	f.oneOf(path, map[string]bool{"cidr": s.CIDR != "", "cidrGroupRef": s.CIDRGroupRef != "", "cidrGroupSelector": s.CIDRGroupSelector != nil})
	group := model.Named{Reference: model.Reference{Kind: model.CIDRGroup, Name: s.CIDRGroupRef}}
	for i, text := range s.Except {
		group.Except = append(group.Except, f.prefix(path.Child("except").Index(i), text))
	}
	if s.CIDRGroupSelector != nil {
		group.Labels = f.labelsOf(path.Child("cidrGroupSelector"), *s.CIDRGroupSelector)
	} else {
		for _, text := range validation.IsDNS1123Subdomain(s.CIDRGroupRef) {
			f.add(field.Invalid(path.Child("cidrGroupRef"), s.CIDRGroupRef, text))
		}
	}
	return []model.Peer{{Named: &group}}
}
