package manifest

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"porin.dev/porin/cells/policy/model"
)

func clusterNetworkPolicy(p *v1alpha2.ClusterNetworkPolicy, f *faults) model.Policy {
	spec := field.NewPath("spec")
	s := tierSpec{
		meta: p.ObjectMeta, kind: model.KindClusterNetworkPolicy, priority: p.Spec.Priority, limit: 25,
		subject: tierPeer{namespaces: p.Spec.Subject.Namespaces, pods: p.Spec.Subject.Pods},
	}
	f.checkPriority(p.Spec.Priority)
	f.requirePodSelectors("podSelector")
	switch p.Spec.Tier {
	case v1alpha2.AdminTier:
		s.tier = model.TierAdmin
	case v1alpha2.BaselineTier:
		s.tier = model.TierBaseline
	default:
		f.add(field.NotSupported(spec.Child("tier"), p.Spec.Tier, []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier}))
	}
	for i, r := range p.Spec.Ingress {
		rule := f.clusterRule(spec.Child("ingress").Index(i), r.Name, r.Action, r.Protocols)
		for _, peer := range r.From {
			rule.peers = append(rule.peers, tierPeer{namespaces: peer.Namespaces, pods: peer.Pods})
		}
		s.ingress = append(s.ingress, rule)
	}
	for i, r := range p.Spec.Egress {
		rule := f.clusterRule(spec.Child("egress").Index(i), r.Name, r.Action, r.Protocols)
		for _, peer := range r.To {
			rule.peers = append(rule.peers, tierPeer{peer.Namespaces, peer.Pods, peer.Nodes, texts(peer.Networks), texts(peer.DomainNames)})
		}
		s.egress = append(s.egress, rule)
	}
	return f.tierPolicy(s)
}

var clusterActions = map[string]model.Action{"Accept": model.Accept, "Deny": model.Deny, "Pass": model.Pass}

func (f *faults) clusterRule(path *field.Path, name string, action v1alpha2.ClusterNetworkPolicyRuleAction, protocols []v1alpha2.ClusterNetworkPolicyProtocol) tierRule {
	rule := tierRule{name: name, action: f.action(path, string(action), clusterActions)}
	at := path.Child("protocols")
	if protocols != nil && len(protocols) == 0 {
		f.add(field.Required(at, "at least one, or no field"))
	}
	f.atMost(at, len(protocols), 25)
	for i, p := range protocols {
		rule.ports = append(rule.ports, f.clusterPort(at.Index(i), p))
		rule.named = rule.named || p.DestinationNamedPort != ""
	}
	return rule
}

func (f *faults) clusterPort(path *field.Path, p v1alpha2.ClusterNetworkPolicyProtocol) model.Port {
	f.oneOf(path, map[string]bool{"tcp": p.TCP != nil, "udp": p.UDP != nil, "sctp": p.SCTP != nil, "destinationNamedPort": p.DestinationNamedPort != ""})
	switch {
	case p.TCP != nil:
		return f.destinationPort(path.Child("tcp"), model.TCP, p.TCP.DestinationPort)
	case p.UDP != nil:
		return f.destinationPort(path.Child("udp"), model.UDP, p.UDP.DestinationPort)
	case p.SCTP != nil:
		return f.destinationPort(path.Child("sctp"), model.SCTP, p.SCTP.DestinationPort)
	case p.DestinationNamedPort != "":
		return model.Port{Name: f.portName(path.Child("destinationNamedPort"), p.DestinationNamedPort)}
	}
	return model.Port{}
}

func (f *faults) destinationPort(path *field.Path, protocol model.Protocol, p *v1alpha2.Port) model.Port {
	at := path.Child("destinationPort")
	if p == nil {
		f.add(field.Required(at, ""))
		return model.Port{}
	}
	port := model.Port{Protocol: protocol}
	if p.Range != nil {
		if p.Number != 0 {
			f.add(field.Forbidden(at, "number and range together"))
		}
		port.First, port.Last = f.portRange(at.Child("range"), p.Range.Start, p.Range.End)
		return port
	}
	port.First = f.portNumber(at.Child("number"), p.Number)
	port.Last = port.First
	return port
}
