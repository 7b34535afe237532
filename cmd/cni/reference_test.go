package main

import (
	"strings"
	"testing"

	"porin.dev/porin/internal/reference"
)

func TestPluginReference(t *testing.T) {
	reference.Check(t, "cni-plugin.md", `# porin-cni

The plugin speaks CNI `+strings.Join(versions, ", ")+`. It reads these keys of a network configuration itself; the agent reads
the rest, which [cni-network.md](cni-network.md) lists.

`+reference.Table([]string{"key", "meaning"}, reference.Keys(t, config{}))+`
The exit code is 0, or 1 with an error of the CNI specification on stdout. [cni-network.md](cni-network.md#error-codes) has the codes.
`)
}
