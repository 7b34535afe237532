// Package endpoint has the words that all cells share: what an endpoint is, what brings it up and down, and who is notified.
//
//	a call of the container runtime -> [Spec] -> endpointmanager -> [Step] by [Step] -> [Endpoint] -> [Subscriber]
//
// All of them are values: a copy stays as it was. Package endpointmanager is the one that changes endpoints. Nothing
// here does I/O but [Namespace], and the package imports no framework, so that every cell and every program that embeds
// one may import it.
package endpoint
