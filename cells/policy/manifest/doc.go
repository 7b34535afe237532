// Package manifest reads policies as Kubernetes writes them, and is the only place that knows Kubernetes' types of
// them.
//
//	YAML or JSON, several documents --> documents --> strict decoding by kind --> validation --> [model.Policy]
//
//	networking.k8s.io/v1                 NetworkPolicy
//	policy.networking.k8s.io/v1alpha2    ClusterNetworkPolicy
//	policy.networking.k8s.io/v1alpha1    AdminNetworkPolicy, BaselineAdminNetworkPolicy
//	cilium.io/v2                         CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy
//	v1                                   List of these
//
// [Read] gives all policies or none. Its error has one line for each fault, with the document, the policy and the
// field. A field that the type does not have is a fault: a misspelt selector would otherwise select everything. A
// policy that the API server would refuse is refused here, too; the server's defaults (a namespace, the protocol TCP,
// the policy types) are filled in here.
package manifest
