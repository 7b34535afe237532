// Command porin is the operator's command line of the Porin agent.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cmd/porin/fleet"
	"porin.dev/porin/internal/version"
)

func main() {
	klog.SetLogger(logr.Discard()) // client-go logs the end of a stream
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, arguments(os.Args), environment{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, colours: isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == "",
		getenv: os.Getenv, now: time.Now, inspect: datapath.Inspect, dial: dialCluster,
	})
	stop()
	os.Exit(code)
}

// arguments are the words after the program's name. As the plugin kubectl-porin, the program is porin cluster.
func arguments(args []string) []string {
	if filepath.Base(args[0]) == "kubectl-porin" {
		return append([]string{clusterGroup}, args[1:]...)
	}
	return args[1:]
}

// environment is all that the program takes from the process it runs in.
type environment struct {
	in       io.Reader
	out, err io.Writer
	colours  bool // out is a terminal that shows them
	getenv   func(string) string
	now      func() time.Time
	inspect  func(bpfRoot string) (datapath.Inspection, error)
	dial     func(kubeconfig, context, namespace string) (fleet.Cluster, *client.Client, func(), error)
}

// session is one run of a command.
type session struct {
	environment
	options
	client  *client.Client
	cluster fleet.Cluster // of the commands of "porin cluster"
}

// run is the program: it returns the exit code.
func run(ctx context.Context, args []string, env environment) int {
	root := newRoot(ctx, env)
	root.SetArgs(append([]string{}, args...)) // nil would stand for the arguments of the process
	err := root.ExecuteContext(ctx)
	if err != nil {
		text := strings.ReplaceAll(err.Error(), context.Canceled.Error(), "interrupted")
		_, _ = fmt.Fprintln(env.err, "porin:", printableLines(text))
	}
	return exitCode(err)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// build says what this program was made of.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func showVersion(_ context.Context, s *session, _ []string) error {
	b := build{Version: version.Of(), Go: runtime.Version()}
	return s.print(b, func(w io.Writer) { _, _ = fmt.Fprintf(w, "porin %s, %s\n", b.Version, b.Go) })
}
