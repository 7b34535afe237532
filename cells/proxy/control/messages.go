package control

import (
	"bytes"
	"encoding/json"
	"fmt"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fault"
)

// The versions of the protocol that this process speaks. A later version reads an earlier one's messages: fields may be
// added, which older processes ignore, and a call that a process does not know is answered with an error. Whoever
// connects proposes; the highest version that both speak is used.
const (
	oldestProtocol = 1
	newestProtocol = 1
)

// Calls and notifications. The agent connects to the proxy.
const (
	methodHello         = "hello"          // agent: first of all
	methodRules         = "rules"          // agent: answered when the proxy has the rules
	methodChanged       = "changed"        // agent: decide again about open connections; a notification
	methodCloseEndpoint = "close-endpoint" // agent: answered when the endpoint's connections have ended
	methodLearn         = "learn"          // proxy, also a replaced one: answered when addresses are in the datapath
	methodHold          = "hold"           // proxy: keep these sockets, in place of others; a notification
	methodReport        = "report"         // proxy: how it is; a notification
	methodRequests      = "requests"       // proxy: what clients have asked for; answered when the agent has them
	methodImportNames   = "import-names"   // an earlier version's agent: answered with nothing, or it reconnects
	methodReplaced      = "replaced"       // proxy: another process is taking over: connect to that; a notification
	methodTakeOver      = "take-over"      // the next proxy: answered with sockets and rules
	methodServing       = "serving"        // the next proxy: it accepts; answered when the previous one does not any more
)

// hello says what the caller speaks and has. With it come the sockets that an agent has held.
type hello struct {
	Oldest  int      `json:"oldest"`
	Newest  int      `json:"newest"`
	Version string   `json:"version"` // of the program, for people
	Sockets []uint32 `json:"sockets,omitempty"`
	Rules   snapshot `json:"rules"`
}

// helloAnswer answers a hello.
type helloAnswer struct {
	Protocol int           `json:"protocol"`
	Version  string        `json:"version"`
	PID      int           `json:"pid"`
	Rejected rejectedRules `json:"rejected,omitempty"`
}

// chooseProtocol returns the version that both ends speak.
func chooseProtocol(h hello) (int, error) {
	chosen := min(h.Newest, newestProtocol)
	if chosen < max(h.Oldest, oldestProtocol) {
		return 0, fault.New(fault.Conflict, fmt.Sprintf("this process speaks the versions %d to %d of the protocol between agent and proxy, the other one (%s) %d to %d: "+
			"use versions of both that are at most one apart", oldestProtocol, newestProtocol, h.Version, h.Oldest, h.Newest))
	}
	return chosen, nil
}

// snapshot has all layer 7 rules and the scope of names. Versions of one agent rise.
type snapshot struct {
	Version uint64                     `json:"version"`
	Partial bool                       `json:"partial,omitempty"` // the agent starts: other rules that the proxy has stay in use
	Rules   map[uint32]json.RawMessage `json:"rules"`             // of type model.Layer7
	Names   *policy.NameScope          `json:"names,omitempty"`   // nil: unknown
}

// decode returns the rules, and why some cannot be used. A field that this process does not know would restrict what
// the rules accept: they are rejected, and what needs them is denied.
func (s snapshot) decode() (map[uint32]model.Layer7, rejectedRules) {
	all, rejected := map[uint32]model.Layer7{}, rejectedRules{}
	for number, text := range s.Rules {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		var rules model.Layer7
		if err := decoder.Decode(&rules); err != nil {
			rejected[number] = fmt.Sprintf("rules that this version of the proxy does not know: %v", err)
			continue
		}
		all[number] = rules
	}
	return all, rejected
}

// rejectedRules says why the proxy does not have rules.
type rejectedRules map[uint32]string

type rulesAnswer struct {
	Rejected rejectedRules `json:"rejected,omitempty"`
}

type closeEndpoint struct {
	Endpoint uint16 `json:"endpoint"`
}

// learnRequest says which addresses an answer to an endpoint gave a name.
type learnRequest struct {
	Endpoint  uint16            `json:"endpoint"`
	Name      string            `json:"name"`
	Addresses []dnsname.Address `json:"addresses"`
}

// hold comes with the sockets of these indexes, in this order.
type hold struct {
	Sockets []uint32 `json:"sockets,omitempty"`
}

// takeOverAnswer answers take-over. Its descriptors are, in this order: the listening sockets of Sockets, the lock of
// the folder of the pin if Locked, the lock of the control socket, and the control socket.
type takeOverAnswer struct {
	Sockets []uint32 `json:"sockets,omitempty"`
	Locked  bool     `json:"locked,omitempty"`
	Rules   snapshot `json:"rules"`
	Agent   bool     `json:"agent,omitempty"` // one is connected, and is told to come

	Names []names.Lookup `json:"names,omitempty"` // that an agent has acknowledged
}

// report is how the proxy is.
type report struct {
	InUse       bool   `json:"inUse"`
	RuleSets    int    `json:"ruleSets"`
	Connections int    `json:"connections"`
	Error       string `json:"error,omitempty"`
}

// requestBatch is what clients have asked for since the last one.
type requestBatch struct {
	Requests []accesslog.Request `json:"requests"`
	Lost     uint64              `json:"lost,omitempty"`
}

func (b requestBatch) isEmpty() bool { return len(b.Requests) == 0 && b.Lost == 0 }

// socketsOf takes the files of the sockets out of the message, and maps each to its index. On an error it takes none:
// the caller closes the message's files.
func socketsOf(m *message, indexes []uint32) (redirect.Sockets, error) {
	if len(m.files) < len(indexes) {
		return nil, fmt.Errorf("%s: %d descriptors have come, want at least %d", m.Method, len(m.files), len(indexes))
	}
	sockets := redirect.Sockets{}
	for i, index := range indexes {
		if sockets[index] != nil {
			return nil, fmt.Errorf("%s: two sockets with the index %d", m.Method, index)
		}
		sockets[index] = m.files[i]
	}
	m.files = m.files[len(indexes):]
	return sockets, nil
}
