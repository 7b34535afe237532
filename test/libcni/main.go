// Command libcni is the part of a container runtime that calls the plugins. It does so as containerd, by its library
// go-cni, or with the build tag crio as CRI-O. It is built with the versions that releases of both have. It reads the
// first configuration of a folder and makes the calls that its arguments name for one container. It skips calls that
// the runtime never makes.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

// report is what the program prints when all calls have succeeded.
type report struct {
	Version string   `json:"version"` // of the specification, as the configuration was loaded
	IPs     []string `json:"ips"`     // as ADD has returned them
	Calls   []string `json:"calls"`
}

// runtime is one container and its network.
type runtime struct {
	folder, plugins string
	id, netns       string
	report          report
}

// podOf has the arguments that both runtimes pass for a pod.
func podOf(id string) map[string]string {
	return map[string]string{
		"K8S_POD_NAMESPACE": "shop", "K8S_POD_NAME": "web", "K8S_POD_INFRA_CONTAINER_ID": id, "K8S_POD_UID": "5c5bf2ae-7e2c-4b0d-9d5c-2f4ab2f4a3c1",
	}
}

func main() {
	r := &runtime{}
	flag.StringVar(&r.folder, "conf", "", "folder of the configurations")
	flag.StringVar(&r.plugins, "plugins", "", "folder of the plugins")
	flag.StringVar(&r.id, "id", "", "container ID")
	flag.StringVar(&r.netns, "netns", "", "network namespace of the container")
	flag.Parse()
	if err := r.run(context.Background(), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "libcni:", err)
		os.Exit(1)
	}
}

func (r *runtime) run(ctx context.Context, names []string) error {
	calls, err := r.load(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		call := calls[name]
		if call == nil {
			continue
		}
		if err := call(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.report.Calls = append(r.report.Calls, name)
	}
	return json.NewEncoder(os.Stdout).Encode(r.report)
}

// calls has the calls of a runtime, by their commands.
type calls map[string]func(context.Context) error
