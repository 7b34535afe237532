package kubernetes

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// The modes there are.
const (
	ModeOff  = "off"
	ModeAuto = "auto" // with a kubeconfig, or in a pod with a service account
)

// Config says how the API server is reached.
type Config struct {
	Mode       string
	Kubeconfig string
	Context    string // of the kubeconfig; "" for its current one
	// Servers replace the server of the kubeconfig, or of the pod's environment. One that does not answer is followed by
	// the next.
	Servers []string
	// DaemonSet is the DaemonSet that the agent runs in, as NAMESPACE/NAME; "" for none.
	DaemonSet string
	// NeedPodCIDRs says that pods get addresses of the Node's podCIDRs.
	NeedPodCIDRs bool
	// NeedRecords says that the API server is the store of Porin's records, so that it needs Porin's CRDs.
	NeedRecords bool
	// NodePath is the file of the node's object, on a disk; "" keeps nothing over a restart.
	NodePath string
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{Mode: ModeAuto} }

// Flags adds the flags of the cell.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Mode, "kubernetes", c.Mode, "whether the Kubernetes API is read: auto (with --kubeconfig, or in a pod with a service account) or off")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "`path` of a kubeconfig with the API server and the agent's credentials; a pod has its service account")
	fs.StringSliceVar(&c.Servers, "kubernetes-api-server", c.Servers, "`URL`s of API servers, tried one after the other, in the place of the kubeconfig's or the pod's")
	fs.StringVar(&c.DaemonSet, "kubernetes-daemonset", c.DaemonSet, "DaemonSet that the agent runs in, as `namespace/name`: if it is gone or being deleted when the agent stops, the agent removes the CNI configuration")
}

// Validate reports every fault.
func (c Config) Validate() error {
	var errs []error
	if c.Mode != ModeAuto && c.Mode != ModeOff {
		errs = append(errs, fmt.Errorf("kubernetes %q: want auto or off", c.Mode))
	}
	if c.Mode == ModeOff && (c.Kubeconfig != "" || len(c.Servers) > 0) {
		errs = append(errs, errors.New("kubeconfig, kubernetes-api-server: of no effect with --kubernetes off"))
	}
	if c.Kubeconfig != "" && !filepath.IsAbs(c.Kubeconfig) {
		errs = append(errs, fmt.Errorf("kubeconfig %q: want an absolute path", c.Kubeconfig))
	}
	if namespace, name, ok := strings.Cut(c.DaemonSet, "/"); c.DaemonSet != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/")) {
		errs = append(errs, fmt.Errorf("kubernetes-daemonset %q: want namespace/name", c.DaemonSet))
	}
	for _, server := range c.Servers {
		if u, err := url.Parse(server); err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" {
			errs = append(errs, fmt.Errorf("kubernetes-api-server %q: want URLs such as https://192.0.2.1:6443", server))
		}
	}
	return errors.Join(errs...)
}

// Enabled reports whether there is an API server to read: of a kubeconfig, or of a pod with a service account.
func (c Config) Enabled() bool {
	_, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	inPod := err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	return c.Mode == ModeAuto && (c.Kubeconfig != "" || inPod)
}
