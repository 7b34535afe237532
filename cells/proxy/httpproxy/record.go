package httpproxy

import "net/http"

// Verdict says what became of a request.
type Verdict string

// The verdicts there are.
const (
	Forwarded Verdict = "forwarded" // the server answered it
	Denied    Verdict = "denied"    // no rule matched, or it cannot be decided about
	Refused   Verdict = "refused"   // it was not a request that the proxy reads
	Failed    Verdict = "failed"    // it was allowed, and no whole answer came
)

// Record tells of one request, or of a connection that ended before one.
type Record struct {
	Method  string
	Host    string // in lower case, without port
	Path    string // with the query, as it was forwarded
	Status  int    // what the client was answered; 0 if nothing
	Verdict Verdict
	Reason  Reason // empty if the verdict is [Forwarded]
}

// Reason says why a request was not answered by the server. Its values are stable.
type Reason string

// The reasons there are.
const (
	ReasonNoRule        Reason = "no-rule"
	ReasonAmbiguousPath Reason = "ambiguous-path" // a server may read another path than the rules did

	ReasonSilent          Reason = "client-sent-nothing"
	ReasonTLS             Reason = "tls"
	ReasonHTTP2           Reason = "http2"
	ReasonConnect         Reason = "connect"
	ReasonHeadTimeout     Reason = "head-timeout"
	ReasonHeadTooLarge    Reason = "head-too-large"
	ReasonIncompleteHead  Reason = "incomplete-head"
	ReasonRequestLine     Reason = "invalid-request-line"
	ReasonTarget          Reason = "invalid-target"
	ReasonVersion         Reason = "unsupported-version"
	ReasonHeader          Reason = "invalid-header"
	ReasonMissingHost     Reason = "missing-host"
	ReasonHost            Reason = "invalid-host"
	ReasonHostMismatch    Reason = "host-mismatch"
	ReasonLength          Reason = "invalid-content-length"
	ReasonLengthTwice     Reason = "ambiguous-length" // Content-Length together with Transfer-Encoding
	ReasonTransferCoding  Reason = "unsupported-transfer-encoding"
	ReasonExpectation     Reason = "unsupported-expectation"
	ReasonChunk           Reason = "invalid-chunk"
	ReasonTrailer         Reason = "invalid-trailer"
	ReasonIncompleteBody  Reason = "incomplete-body"
	ReasonClientGone      Reason = "client-gone"
	ReasonDial            Reason = "connection-to-server-failed"
	ReasonServerClosed    Reason = "server-closed" // before it answered
	ReasonServerNotHTTP   Reason = "server-not-http"
	ReasonResponse        Reason = "invalid-response"     // syntax, or a length that can be read in two ways
	ReasonUpgrade         Reason = "unasked-upgrade"      // the server switched to a protocol that was not offered
	ReasonUnsolicited     Reason = "unsolicited-response" // the server sent something between requests
	ReasonTooManyInterims Reason = "too-many-1xx"

	// Those of HTTP/2 alone.
	ReasonServerNotHTTP2   Reason = "server-not-http2"
	ReasonPseudoHeader     Reason = "invalid-pseudo-header"
	ReasonLengthMismatch   Reason = "content-length-mismatch"
	ReasonProtocol         Reason = "protocol-error"
	ReasonFlood            Reason = "flood" // too many frames that are of no use
	ReasonTooManyStreams   Reason = "too-many-streams"
	ReasonCanceledByClient Reason = "canceled-by-client"
	ReasonCanceledByServer Reason = "canceled-by-server"

	ReasonMemory  Reason = "too-much-memory" // the connections of the endpoint hold too much
	ReasonStalled Reason = "stalled"         // no byte moved for too long
	ReasonStopped Reason = "proxy-stopped"   // the context of Serve ended
)

// Status is what the client is answered.
func (r Reason) Status() int {
	switch r {
	case ReasonNoRule, ReasonAmbiguousPath:
		return http.StatusForbidden
	case ReasonConnect:
		return http.StatusMethodNotAllowed
	case ReasonHeadTimeout, ReasonSilent:
		return http.StatusRequestTimeout
	case ReasonHeadTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case ReasonVersion:
		return http.StatusHTTPVersionNotSupported
	case ReasonExpectation:
		return http.StatusExpectationFailed
	case ReasonDial, ReasonMemory:
		return http.StatusServiceUnavailable
	case ReasonStalled:
		return http.StatusGatewayTimeout
	case ReasonServerClosed, ReasonServerNotHTTP, ReasonServerNotHTTP2, ReasonResponse, ReasonUpgrade, ReasonTooManyInterims:
		return http.StatusBadGateway
	default:
		return http.StatusBadRequest
	}
}
