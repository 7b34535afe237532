package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"porin.dev/porin/cells/policy/model"
)

func adminNetworkPolicy(p *v1alpha1.AdminNetworkPolicy, f *faults) model.Policy {
	spec := field.NewPath("spec")
	s := tierSpec{
		meta: p.ObjectMeta, kind: model.KindAdminNetworkPolicy, tier: model.TierAdmin, priority: p.Spec.Priority, limit: 100,
		subject: pods(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods),
	}
	f.checkPriority(p.Spec.Priority)
	f.requirePodSelectors("namespaceSelector", "podSelector")
	for i, r := range p.Spec.Ingress {
		at := spec.Child("ingress").Index(i)
		s.ingress = append(s.ingress, f.adminRule(at, r.Name, f.action(at, string(r.Action), adminActions), fromPeers(r.From), r.Ports))
	}
	for i, r := range p.Spec.Egress {
		var peers []tierPeer
		for _, peer := range r.To {
			to := pods(peer.Namespaces, peer.Pods)
			to.nodes, to.networks, to.domainNames = peer.Nodes, texts(peer.Networks), texts(peer.DomainNames)
			peers = append(peers, to)
		}
		at := spec.Child("egress").Index(i)
		s.egress = append(s.egress, f.adminRule(at, r.Name, f.action(at, string(r.Action), adminActions), peers, r.Ports))
	}
	return f.tierPolicy(s)
}

func baselineAdminNetworkPolicy(p *v1alpha1.BaselineAdminNetworkPolicy, f *faults) model.Policy {
	spec := field.NewPath("spec")
	s := tierSpec{
		meta: p.ObjectMeta, kind: model.KindBaselineAdminNetworkPolicy, tier: model.TierBaseline,
		priority: model.BaselineAdminPriority, limit: 100,
		subject: pods(p.Spec.Subject.Namespaces, p.Spec.Subject.Pods),
	}
	if p.Name != "" && p.Name != "default" {
		f.add(field.Invalid(field.NewPath("metadata", "name"), p.Name, `there is one in a cluster, and its name is "default"`))
	}
	f.requirePodSelectors("namespaceSelector", "podSelector")
	for i, r := range p.Spec.Ingress {
		at := spec.Child("ingress").Index(i)
		s.ingress = append(s.ingress, f.adminRule(at, r.Name, f.action(at, string(r.Action), baselineActions), fromPeers(r.From), r.Ports))
	}
	for i, r := range p.Spec.Egress {
		var peers []tierPeer
		for _, peer := range r.To {
			to := pods(peer.Namespaces, peer.Pods)
			to.nodes, to.networks = peer.Nodes, texts(peer.Networks)
			peers = append(peers, to)
		}
		at := spec.Child("egress").Index(i)
		s.egress = append(s.egress, f.adminRule(at, r.Name, f.action(at, string(r.Action), baselineActions), peers, r.Ports))
	}
	return f.tierPolicy(s)
}

var (
	adminActions    = map[string]model.Action{"Allow": model.Accept, "Deny": model.Deny, "Pass": model.Pass}
	baselineActions = map[string]model.Action{"Allow": model.Accept, "Deny": model.Deny}
)

func pods(namespaces *metav1.LabelSelector, pods *v1alpha1.NamespacedPod) tierPeer {
	return tierPeer{namespaces: namespaces, pods: (*v1alpha2.NamespacedPod)(pods)}
}

func fromPeers(from []v1alpha1.AdminNetworkPolicyIngressPeer) []tierPeer {
	var peers []tierPeer
	for _, peer := range from {
		peers = append(peers, pods(peer.Namespaces, peer.Pods))
	}
	return peers
}

func (f *faults) adminRule(path *field.Path, name string, action model.Action, peers []tierPeer, ports *[]v1alpha1.AdminNetworkPolicyPort) tierRule {
	rule := tierRule{name: name, action: action, peers: peers}
	if ports == nil {
		return rule
	}
	at := path.Child("ports")
	if len(*ports) == 0 {
		f.add(field.Required(at, "at least one, or no field"))
	}
	f.atMost(at, len(*ports), 100)
	for i, p := range *ports {
		rule.ports = append(rule.ports, f.adminPort(at.Index(i), p))
		rule.named = rule.named || p.NamedPort != nil
	}
	return rule
}

func (f *faults) adminPort(path *field.Path, p v1alpha1.AdminNetworkPolicyPort) model.Port {
	f.oneOf(path, map[string]bool{"portNumber": p.PortNumber != nil, "namedPort": p.NamedPort != nil, "portRange": p.PortRange != nil})
	switch {
	case p.PortNumber != nil:
		at := path.Child("portNumber")
		number := f.portNumber(at.Child("port"), p.PortNumber.Port)
		return model.Port{Protocol: f.protocol(at.Child("protocol"), p.PortNumber.Protocol), First: number, Last: number}
	case p.PortRange != nil:
		at := path.Child("portRange")
		first, last := f.portRange(at, p.PortRange.Start, p.PortRange.End)
		return model.Port{Protocol: f.protocol(at.Child("protocol"), p.PortRange.Protocol), First: first, Last: last}
	case p.NamedPort != nil:
		return model.Port{Name: f.portName(path.Child("namedPort"), *p.NamedPort)}
	}
	return model.Port{}
}
