// Package model has the words of network policy: policies as they are after reading, and what they apply to. It is data
// only.
//
//	Kubernetes' manifests --> manifest --> [Policy]   -.
//	                                                    +--> engine: verdicts, and rows for the datapath
//	pods and nodes of the cluster -------> [Endpoint] -'
//
//	[TierAdmin]          ClusterNetworkPolicy (tier Admin), AdminNetworkPolicy        by priority, then the rules in order
//	      | pass, or no rule matched
//	[TierNetworkPolicy]  NetworkPolicy, CiliumNetworkPolicy, CiliumClusterwideNetworkPolicy
//	      |                                             any rule denies; else any rule accepts; otherwise deny, if one selects the pod
//	      | no policy of the tier selects the pod, or only such as deny nothing by default
//	[TierBaseline]       ClusterNetworkPolicy (tier Baseline), BaselineAdminNetworkPolicy
//	      | pass, or no rule matched
//	   allowed
//
// All values are immutable: their maker does not change them, so that all readers may keep them without a copy.
package model
