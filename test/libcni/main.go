// Command libcni is a container runtime as small as it can be, built with several versions of libcni: it loads a
// configuration list from a file and calls the plugins for one container. The libraries of real runtimes accept and choose
// different versions of the specification: containerd 1.6 and 1.7 have libcni 1.1, which knows none after 1.0.0.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// report is what the program prints when all calls have succeeded.
type report struct {
	Version string   `json:"version"` // of the specification, as the list was loaded
	IPs     []string `json:"ips"`     // as ADD has returned them
	Calls   []string `json:"calls"`
}

func main() {
	r := &runtime{attachment: &libcni.RuntimeConf{IfName: "eth0"}}
	file := flag.String("list", "", "configuration list")
	plugins := flag.String("plugins", "", "folder of the plugins")
	cache := flag.String("cache", "", "folder of the library's cache")
	flag.StringVar(&r.attachment.ContainerID, "id", "", "container ID")
	flag.StringVar(&r.attachment.NetNS, "netns", "", "network namespace of the container")
	flag.Parse()
	r.conf = libcni.NewCNIConfigWithCacheDir([]string{*plugins}, *cache, nil)
	if err := r.run(*file); err != nil {
		fmt.Fprintln(os.Stderr, "libcni:", err)
		os.Exit(1)
	}
}

// runtime is one container and its network.
type runtime struct {
	conf       *libcni.CNIConfig
	list       *libcni.NetworkConfigList
	attachment *libcni.RuntimeConf
	report     report
}

func (r *runtime) run(file string) (err error) {
	if r.list, err = libcni.ConfListFromFile(file); err != nil {
		return err
	}
	r.report.Version = r.list.CNIVersion
	ctx := context.Background()
	check := func(ctx context.Context) error { return r.conf.CheckNetworkList(ctx, r.list, r.attachment) }
	del := func(ctx context.Context) error { return r.conf.DelNetworkList(ctx, r.list, r.attachment) }
	for _, c := range []call{{"ADD", r.add}, {"CHECK", check}, r.status(), r.gc(), {"CHECK", check}, {"DEL", del}, {"DEL", del}} {
		if c.do == nil {
			continue // the library does not have it
		}
		if err := c.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.report.Calls = append(r.report.Calls, c.name)
	}
	return json.NewEncoder(os.Stdout).Encode(r.report)
}

type call struct {
	name string
	do   func(context.Context) error
}

// add converts the result as runtimes do, which read one version only.
func (r *runtime) add(ctx context.Context) error {
	result, err := r.conf.AddNetworkList(ctx, r.list, r.attachment)
	if err != nil {
		return err
	}
	got, err := types100.NewResultFromResult(result)
	if err != nil {
		return err
	}
	for _, ip := range got.IPs {
		r.report.IPs = append(r.report.IPs, ip.Address.IP.String())
	}
	return nil
}
