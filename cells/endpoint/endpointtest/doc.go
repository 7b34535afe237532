// Package endpointtest has the tests that every [endpoint.Step], [endpoint.Subscriber] and [endpoint.Observer] must
// pass. Whoever writes one calls [TestStep], [TestSubscriber] or [TestObserver] in a test of its package. It imports no
// framework.
package endpointtest
