package apiserver

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// Request is a request of a service account of Porin, and its answer.
type Request struct {
	Verb, Group, Resource, Subresource string
	Name                               string // also of a list or watch of one object
	Code                               int
}

// Requests returns what agents have asked for, also what was refused.
func (s *Server) Requests(t testing.TB) (list []Request) {
	t.Helper()
	return s.RequestsOf(t, AgentAccount)
}

// RequestsOf is Requests for another service account of Porin's namespace.
func (s *Server) RequestsOf(t testing.TB, account string) (list []Request) {
	t.Helper()
	text, err := os.ReadFile(s.file("audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the API server is writing it
		}
		var event struct {
			AuditID, Stage, Verb string

			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource, APIGroup, Name string }

			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if event.User.Username == "system:serviceaccount:"+AgentNamespace+":"+account && event.Stage != "RequestReceived" {
			o := event.ObjectRef
			if !seen[event.AuditID] { // a watch has a line for its beginning and one for its end
				list = append(list, Request{event.Verb, o.APIGroup, o.Resource, o.Subresource, o.Name, event.ResponseStatus.Code})
			}
			seen[event.AuditID] = true
		}
	}
	return list
}
