package endpointmanager

import (
	"context"
	"fmt"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// Describer adds what another cell knows of an endpoint to its description in the API: the datapath its counters.
// It is called for each endpoint of each answer, concurrently, and must be fast.
type Describer interface {
	Describe(ep endpoint.Endpoint, description *v1.Endpoint)
}

// Describe contributes the [Describer] that newDescriber builds: endpointmanager.Describe(newDescriber).
func Describe(newDescriber any) fx.Option {
	return fx.Provide(fx.Annotate(newDescriber, fx.As(new(Describer)), fx.ResultTags(`group:"endpoint.describers"`)))
}

// Subscribe contributes the [endpoint.Subscriber] that newSubscriber builds: endpointmanager.Subscribe(newProber).
func Subscribe(newSubscriber any) fx.Option {
	return fx.Provide(fx.Annotate(newSubscriber, fx.As(new(endpoint.Subscriber)), fx.ResultTags(`group:"endpoint.subscribers"`)))
}

// Observe contributes the [endpoint.Observer] that newObserver builds: endpointmanager.Observe(newHistograms).
func Observe(newObserver any) fx.Option {
	return fx.Provide(fx.Annotate(newObserver, fx.As(new(endpoint.Observer)), fx.ResultTags(`group:"endpoint.observers"`)))
}

// PodSource knows the labels and named ports of pods before the runtime attaches them: the Kubernetes API. With a
// source, callers do not give them.
type PodSource interface {
	// Metadata returns what policies know of a pod, and may wait for it some seconds. An error is why the pod must not be
	// attached now.
	Metadata(ctx context.Context, pod endpoint.Pod) (endpoint.Metadata, error)
}

// Pods contributes the [PodSource] that newSource builds.
func Pods(newSource any) fx.Option {
	return fx.Provide(fx.Annotate(newSource, fx.As(new(PodSource)), fx.ResultTags(`group:"endpoint.podsources"`)))
}

// withMetadata is the spec of a pod with what the sources know of it, in the place of what the caller gave. A container
// without a pod's name is left as it is.
func withMetadata(ctx context.Context, sources []PodSource, spec endpoint.Spec) (endpoint.Spec, error) {
	if spec.Kind != endpoint.KindPod || spec.Pod.Name == "" || spec.Pod.Namespace == "" {
		return spec, nil
	}
	for _, source := range sources {
		metadata, err := source.Metadata(ctx, spec.Pod)
		if err != nil {
			return spec, err
		}
		change, err := metadata.Encode()
		if err != nil {
			return spec, err
		}
		if spec.Metadata, err = endpoint.ChangeMetadata(spec.Metadata, change); err != nil {
			return spec, err
		}
	}
	return spec, spec.ValidateMetadata()
}

// checkPatch refuses to change what the Kubernetes API says of a pod.
func checkPatch(sources []PodSource, ep endpoint.Endpoint, change endpoint.Metadata) error {
	pod := ep.Spec.Pod
	if len(sources) == 0 || pod.Name == "" || pod.Namespace == "" || (change.Labels == nil && change.NamespaceLabels == nil && change.NamedPorts == nil) {
		return nil
	}
	return fault.New(fault.Invalid, fmt.Sprintf("labels of a pod of Kubernetes are those of its API: kubectl --namespace %s label pod %s KEY=VALUE", pod.Namespace, pod.Name))
}
