package testutil

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// NodeExec runs CNI plugins as processes in a node's namespace. It is an invoke.Exec for libcni.
type NodeExec struct {
	Node *Node
	Wrap Wrapper // may be nil
	version.PluginDecoder
}

// Wrapper changes a command before it is started: it may put another program before it, or give it more files.
type Wrapper func(*exec.Cmd)

func (w Wrapper) apply(cmd *exec.Cmd) {
	if w != nil {
		w(cmd)
	}
}

var _ invoke.Exec = (*NodeExec)(nil)

// ExecPlugin runs the plugin and returns what it printed; a failure that it printed is a *types.Error.
func (e *NodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	e.Wrap.apply(cmd)
	if err := e.Node.Do(cmd.Start); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	if err == nil {
		return stdout.Bytes(), nil
	}
	failure := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), failure) != nil {
		return nil, fmt.Errorf("%s: %w; it printed %q and %q", path, err, stdout.String(), stderr.String())
	}
	return nil, failure
}

// FindInPath finds the plugin's binary.
func (e *NodeExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}
