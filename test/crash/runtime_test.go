package crash

import (
	"encoding/json"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// gcConfig is what a runtime gives the verb GC.
func gcConfig(node *testutil.Node, valid []nodecheck.Pod) []byte {
	type attachment struct {
		ContainerID string `json:"containerID"`
		IfName      string `json:"ifname"`
	}
	list := []attachment{}
	for _, p := range valid {
		list = append(list, attachment{p.ID, p.IfName})
	}
	text, _ := json.Marshal(map[string]any{ // which always can be
		"cniVersion": "1.1.0", "name": "porin", "type": "porin-cni", "socket": node.Socket, "stateDir": node.StateDir,
		"cni.dev/valid-attachments": list,
	})
	return text
}
