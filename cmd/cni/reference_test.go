package main

import (
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil/reference"
)

func TestPluginReference(t *testing.T) {
	reference.Check(t, "cni-plugin.md", `# porin-cni

The plugin speaks CNI `+strings.Join(versions, ", ")+`. It reads these keys of a network configuration itself; the agent reads
the rest, which [cni-network.md](cni-network.md) lists.

`+reference.Table([]string{"key", "meaning"}, reference.Keys(t, config{}))+`
The exit code is 0, or 1 with an error of the CNI specification on stdout. [cni-network.md](cni-network.md#error-codes) has the codes.

`+"`porin-cni install DIR`"+`, without CNI_COMMAND, copies the program to `+"`DIR/porin-cni`"+` with the mode 0755, if that differs. DIR is an absolute path, and must exist.
The copy is `+"`DIR/.porin-cni.new`"+` at first and is then renamed, so a runtime finds the old program or the new one. Nothing else is left there. The exit code is 0,
or 1 with one line on stderr that says why.
`)
}
