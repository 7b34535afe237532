package delegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

const (
	// maxOutput bounds what a plugin may print, in bytes; maxLog what is kept of its standard error.
	maxOutput, maxLog = 1 << 20, 4 << 10
	// closeDelay is how long the output of a program that has ended is waited for: it may have left a process running.
	closeDelay = time.Second
	// busyTries and busyWait are for a program that is being replaced (ETXTBSY).
	busyTries, busyWait = 5, 20 * time.Millisecond
)

// runner runs plugins. It is an invoke.Exec.
type runner struct {
	hostRoot string
	lock     *os.File // of the attachment, held by the program until it ends; may be nil
	version.PluginDecoder
}

var _ invoke.Exec = (*runner)(nil)

// ExecPlugin runs a plugin and returns what it printed; a failure that it printed is a *types.Error.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) (stdout []byte, err error) {
	for try := range busyTries {
		stdout, err = r.run(ctx, path, stdin, environ)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries-1 {
			break
		}
		if err := task.Sleep(ctx, busyWait<<try); err != nil {
			return nil, err
		}
	}
	return stdout, err
}

func (r *runner) run(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := &bounded{most: maxOutput}, &bounded{most: maxLog, cut: true}
	cmd := exec.CommandContext(ctx, path)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", environ, bytes.NewReader(stdin), stdout, stderr
	// It outlives an agent that is killed: host-local, killed as well, leaves addresses without an owner. Its lock says
	// when it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Chroot: r.hostRoot}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = closeDelay
	if r.lock != nil {
		cmd.ExtraFiles = []*os.File{r.lock}
	}
	err := cmd.Run()
	switch {
	case errors.Is(err, errFlood):
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		return nil, fmt.Errorf("it printed more than %d bytes", maxOutput)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("it did not end in time: %w", ctx.Err())
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return stdout.Bytes(), nil
	case cmd.ProcessState == nil && r.hostRoot != "" && errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("start it in %s: %w: --cni-host-root takes CAP_SYS_CHROOT", r.hostRoot, err)
	case cmd.ProcessState == nil:
		return nil, fmt.Errorf("start it: %w", err)
	}
	failure := &types.Error{}
	if json.Unmarshal(stdout.Bytes(), failure) == nil && failure.Code > 0 && failure.Msg != "" {
		failure.Msg, failure.Details = clip(failure.Msg), clip(failure.Details)
		return nil, failure
	}
	return nil, fmt.Errorf("%w; it printed %.200q and %.200q, which is no error of CNI", err, stdout, stderr)
}

// FindInPath implements invoke.Exec. The path that it returns is below the runner's root.
func (r *runner) FindInPath(name string, dirs []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) || name == "" {
		return "", fmt.Errorf("%w: %.64q: a type is a file's name, without a path", ErrNoPlugin, name)
	}
	if name == "porin-cni" {
		return "", fmt.Errorf("%w: porin-cni would call the agent that calls it: name another plugin in \"ipam\", or none", ErrNoPlugin)
	}
	if name == "dhcp" {
		return "", ErrDHCP
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		info, err := os.Stat(filepath.Join(r.hostRoot, file))
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w: %.64q is not in %s: install it, or correct \"ipam\" in the network configuration, or --cni-bin-dirs",
		ErrNoPlugin, name, strings.Join(dirs, ", "))
}

// ErrNoPlugin is returned when none of the folders has a program of the plugin's name.
var ErrNoPlugin = fault.New(fault.Invalid, "IPAM plugin not found")

// ErrDHCP is returned for the reference plugin dhcp.
var ErrDHCP = fault.New(fault.Invalid, "the IPAM plugin dhcp cannot reach a DHCP server: there is no layer 2 network behind the links of porin-cni: "+
	"name another plugin in \"ipam\" of the network configuration, or none")

// bounded is a buffer with an end.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool // drop what is too much, instead of failing
}

var errFlood = errors.New("too much output")

func (b *bounded) Write(p []byte) (int, error) {
	room := b.most - b.Len()
	if len(p) <= room {
		return b.Buffer.Write(p)
	}
	b.Buffer.Write(p[:max(room, 0)])
	if b.cut {
		return len(p), nil
	}
	return 0, errFlood
}

// clip bounds the text of a plugin's error: it goes into events and logs.
func clip(text string) string {
	const most = 4096
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
