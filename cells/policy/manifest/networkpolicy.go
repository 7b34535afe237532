package manifest

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"porin.dev/porin/cells/policy/model"
)

func networkPolicy(p *networkingv1.NetworkPolicy, f *faults) model.Policy {
	spec := field.NewPath("spec")
	id := f.checkName(p.ObjectMeta, model.KindNetworkPolicy)
	policy := model.Policy{
		ID: id, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: id.Namespace, Labels: f.selector(spec.Child("podSelector"), p.Spec.PodSelector)},
	}
	egress, ingress := model.Rules{}, model.Rules{}
	for i, r := range p.Spec.Ingress {
		path := spec.Child("ingress").Index(i)
		ingress = append(ingress, f.acceptRule(path, "from", id.Namespace, r.From, r.Ports))
	}
	for i, r := range p.Spec.Egress {
		path := spec.Child("egress").Index(i)
		egress = append(egress, f.acceptRule(path, "to", id.Namespace, r.To, r.Ports))
	}
	for i, t := range p.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			f.add(field.NotSupported(spec.Child("policyTypes").Index(i), t,
				[]networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}))
		}
	}
	f.atMost(spec.Child("policyTypes"), len(p.Spec.PolicyTypes), 2)
	unset := len(p.Spec.PolicyTypes) == 0
	if unset || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
		policy.Ingress = &ingress
	}
	if unset && len(p.Spec.Egress) > 0 || slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		policy.Egress = &egress
	}
	return policy
}

func (f *faults) acceptRule(path *field.Path, peersName, namespace string, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) model.Rule {
	rule := model.Rule{Action: model.Accept}
	for i, p := range peers {
		rule.Peers = append(rule.Peers, f.networkPolicyPeer(path.Child(peersName).Index(i), namespace, p))
	}
	if len(peers) == 0 {
		rule.Peers = []model.Peer{{Any: true}}
	}
	for i, p := range ports {
		rule.Ports = append(rule.Ports, f.networkPolicyPort(path.Child("ports").Index(i), p))
	}
	return rule
}

func (f *faults) networkPolicyPeer(path *field.Path, namespace string, p networkingv1.NetworkPolicyPeer) model.Peer {
	if p.IPBlock != nil {
		if p.PodSelector != nil || p.NamespaceSelector != nil {
			f.add(field.Forbidden(path, "ipBlock together with podSelector or namespaceSelector"))
		}
		return model.Peer{Block: f.block(path.Child("ipBlock"), p.IPBlock.CIDR, p.IPBlock.Except)}
	}
	if p.PodSelector == nil && p.NamespaceSelector == nil {
		f.add(field.Required(path, "one of ipBlock, namespaceSelector and podSelector"))
		return model.Peer{}
	}
	pods := &model.Pods{}
	if p.NamespaceSelector == nil {
		pods.Namespace = namespace
	} else {
		pods.Namespaces = f.selector(path.Child("namespaceSelector"), *p.NamespaceSelector)
	}
	if p.PodSelector != nil {
		pods.Labels = f.selector(path.Child("podSelector"), *p.PodSelector)
	}
	return model.Peer{Pods: pods}
}

func (f *faults) networkPolicyPort(path *field.Path, p networkingv1.NetworkPolicyPort) model.Port {
	port := model.Port{Protocol: model.TCP}
	if p.Protocol != nil {
		port.Protocol = f.protocol(path.Child("protocol"), *p.Protocol)
	}
	at := path.Child("port")
	switch {
	case p.Port == nil:
		port.Last = 65535
		if p.EndPort != nil {
			f.add(field.Required(at, "endPort needs it"))
		}
	case p.Port.Type == intstr.String:
		port.Name = f.portName(at, p.Port.StrVal)
		if p.EndPort != nil {
			f.add(field.Forbidden(path.Child("endPort"), "the port is a name"))
		}
	default:
		port.First = f.portNumber(at, p.Port.IntVal)
		port.Last = port.First
		if p.EndPort != nil {
			port.Last = f.portNumber(path.Child("endPort"), *p.EndPort)
			if *p.EndPort < p.Port.IntVal {
				f.add(field.Invalid(path.Child("endPort"), *p.EndPort, "less than port"))
			}
		}
	}
	return port
}
