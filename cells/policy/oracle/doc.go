// Package oracle is for tests: a slow evaluator of policies, and random cases to compare others with.
//
//	[Random] --> [World] --> [World.Evaluate] --.
//	               |                             +-- equal?
//	               '--> engine, datapath -------'
//
// It is written from the documentation of the APIs alone (the reference of networking.k8s.io/v1 and the field comments
// of sigs.k8s.io/network-policy-api) and shares only the model's types with the engine. It looks at everything again
// for each connection.
package oracle
