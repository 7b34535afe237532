// Package endpoint has the types that all cells share: the endpoint, the steps that bring it up and down, and its
// subscribers.
//
//	a call of the container runtime -> [Spec] -> endpointmanager -> [Step] by [Step] -> [Endpoint] -> [Subscriber]
//
// All of them are values: a copy stays as it was. Package endpointmanager changes endpoints. Nothing
// here does I/O but [Namespace], and the package imports no framework, so that every cell and every program that embeds
// one may import it.
package endpoint
