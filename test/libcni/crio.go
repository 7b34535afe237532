//go:build crio

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// load reads the folder as ocicni, the library of CRI-O, does: it takes the first list whose plugins know its version.
// CRI-O calls STATUS and GC at its start, CHECK after each ADD, and from 1.37 on STATUS every 5 seconds.
func (r *runtime) load(ctx context.Context) (calls, error) {
	cni := libcni.NewCNIConfig([]string{r.plugins}, nil)
	list, err := firstList(ctx, cni, r.folder)
	if err != nil {
		return nil, err
	}
	r.report.Version = list.CNIVersion
	attachment := &libcni.RuntimeConf{
		ContainerID: r.id, NetNS: r.netns, IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"}},
		CapabilityArgs: map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{"a": "b"}},
	}
	for key, value := range podOf(r.id) {
		attachment.Args = append(attachment.Args, [2]string{key, value})
	}
	return calls{
		"STATUS": func(ctx context.Context) error { return cni.GetStatusNetworkList(ctx, list) },
		"GC": func(ctx context.Context) error { // spares the container
			valid := []types.GCAttachment{{ContainerID: r.id, IfName: attachment.IfName}}
			return cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
		},
		"CHECK": func(ctx context.Context) error { return cni.CheckNetworkList(ctx, list, attachment) },
		"DEL":   func(ctx context.Context) error { return cni.DelNetworkList(ctx, list, attachment) },
		"ADD": func(ctx context.Context) error {
			result, err := cni.AddNetworkList(ctx, list, attachment)
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
		},
	}, nil
}

func firstList(ctx context.Context, cni *libcni.CNIConfig, folder string) (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(folder, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		list, invalid := libcni.NetworkConfFromFile(file)
		if invalid == nil {
			_, invalid = cni.ValidateNetworkList(ctx, list) // VERSION of each plugin
		}
		if invalid == nil {
			return list, nil
		}
		err = errors.Join(err, invalid)
	}
	return nil, fmt.Errorf("no valid configuration in %s: %w", folder, err)
}
