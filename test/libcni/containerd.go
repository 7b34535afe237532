//go:build !crio

package main

import (
	"context"
	"errors"

	gocni "github.com/containerd/go-cni"
)

// load sets go-cni up as containerd with use_internal_loopback. containerd calls neither CHECK nor GC. Whether its
// STATUS is a call of the plugin depends on the version of go-cni.
func (r *runtime) load(context.Context) (calls, error) {
	cni, err := gocni.New(gocni.WithMinNetworkCount(1), gocni.WithPluginConfDir(r.folder), gocni.WithPluginMaxConfNum(1),
		gocni.WithPluginDir([]string{r.plugins}))
	if err != nil {
		return nil, err
	}
	if err := cni.Load(gocni.WithDefaultConf); err != nil {
		return nil, err
	}
	r.report.Version = cni.GetConfig().Networks[0].Config.CNIVersion
	pod := []gocni.NamespaceOpts{gocni.WithLabels(podOf(r.id)), gocni.WithCapability("io.kubernetes.cri.pod-annotations", map[string]string{"a": "b"})}
	return calls{
		"STATUS": func(context.Context) error { return cni.Status() },
		"DEL":    func(ctx context.Context) error { return cni.Remove(ctx, r.id, r.netns, pod...) },
		"ADD": func(ctx context.Context) error {
			result, err := cni.Setup(ctx, r.id, r.netns, pod...)
			if err != nil {
				return err
			}
			network := result.Interfaces["eth0"]
			if network == nil {
				return errors.New("the result has no eth0")
			}
			for _, ip := range network.IPConfigs {
				r.report.IPs = append(r.report.IPs, ip.IP.String())
			}
			return nil
		},
	}, nil
}
