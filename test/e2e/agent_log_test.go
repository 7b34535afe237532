package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/node"
)

// TestAgentLog: the log tells when the agent starts, which endpoints it has restored, and why it stops.
func TestAgentLog(t *testing.T) {
	r := newRig(t)
	r.pod()
	time.Sleep(2 * node.StoreTimeout) // a node of its own waits for no store
	r.agent.Restart(t)
	log := r.agent.Log()
	for _, want := range []string{
		`level=INFO msg="agent starts" version=`,
		fmt.Sprintf(" node=%s netns=", r.node.Name),
		`msg="endpoints restored" cell=endpointmanager adopted=1 replaced=0 undone=0 held=0 removed=0 duration=`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("want %s in\n%s", want, log)
		}
	}
	if strings.Contains(log, "level=WARN") {
		t.Errorf("a start without trouble warns:\n%s", log)
	}
	r.agent.Stop(t)
	if log := r.agent.Log(); !strings.Contains(log, `level=INFO msg="agent stops" reason="terminated signal received"`) {
		t.Errorf("the log of an agent that got SIGTERM is\n%s", log)
	}
}
