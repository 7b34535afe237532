package main

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"porin.dev/porin/cells/kubernetes"
	"porin.dev/porin/cells/kubernetes/records"
	"porin.dev/porin/cells/kubernetes/watch"
)

// agent has a connection of its own.
type agent struct {
	kinds  []*follower
	groups *follower // one of the kinds

	end     context.CancelFunc
	running sync.WaitGroup
}

// newAgent follows what agents follow of the whole cluster.
func newAgent(kubeconfig string) (*agent, error) {
	client, err := kubernetes.NewClient(kubernetes.Config{Mode: kubernetes.ModeAuto, Kubeconfig: kubeconfig})
	if err != nil {
		return nil, err
	}
	core, err := client.Core()
	if err != nil {
		return nil, err
	}
	a := &agent{kinds: []*follower{{resource: "namespaces", source: watch.Metadata(core, "namespaces", "", func(*metav1.PartialObjectMetadata) struct{} { return struct{}{} })}}}
	for resource, version := range map[string]schema.GroupVersion{
		"networkpolicies": {Group: "networking.k8s.io", Version: "v1"}, "porinnetworks": records.Version, "porinendpointgroups": records.Version,
	} {
		group, err := client.Group(version)
		if err != nil {
			return nil, err
		}
		a.kinds = append(a.kinds, &follower{resource: resource, source: watch.Raw[struct{}]{
			Client: group, Resource: resource, Slim: func(metav1.ObjectMeta, []byte) struct{} { return struct{}{} },
		}})
	}
	a.groups = a.kinds[slices.IndexFunc(a.kinds, func(f *follower) bool { return f.resource == "porinendpointgroups" })]
	return a, nil
}

func (a *agent) start(ctx context.Context) {
	ctx, a.end = context.WithCancel(ctx)
	for _, f := range a.kinds {
		f.loop = watch.New(f.resource, watch.Source[struct{}](pages{f.source, &f.pages}), watch.Handler[struct{}](f), slog.New(slog.DiscardHandler))
		f.pages.Store(0)
		if f.mark.Version != "" {
			f.loop.ResumeFrom(watch.Resume[struct{}]{
				Mark: f.mark, Check: func(context.Context) error { return nil }, Pages: func(func([]watch.Object[struct{}])) error { return nil },
			})
		}
		a.running.Go(func() { _ = f.loop.Run(ctx) }) // returns nil
	}
}

func (a *agent) stop() {
	a.end()
	a.running.Wait()
}

// follower follows one kind. It is the handler of its loop, and the mark is what a disk would have.
type follower struct {
	resource string
	source   watch.Source[struct{}]
	loop     *watch.Loop[struct{}]
	pages    atomic.Int64
	mark     watch.Mark
}

func (f *follower) version() uint64 {
	version, _ := strconv.ParseUint(f.loop.State().Version, 10, 64)
	return version
}

// Page implements [watch.PageHandler].
func (f *follower) Page(_ []watch.Object[struct{}], _, more bool) {
	if !more {
		f.mark = f.loop.Mark()
	}
}

// Replace implements [watch.Handler].
func (f *follower) Replace(map[watch.Key]watch.Object[struct{}]) {}

// Update implements [watch.Handler].
func (f *follower) Update(watch.Object[struct{}]) { f.mark = f.loop.Mark() }

// Delete implements [watch.Handler].
func (f *follower) Delete(watch.Object[struct{}]) { f.mark = f.loop.Mark() }

// pages counts pages of lists of everything.
type pages struct {
	watch.Source[struct{}]
	count *atomic.Int64
}

// List implements [watch.Source].
func (p pages) List(ctx context.Context, options metav1.ListOptions) (watch.Page[struct{}], error) {
	if options.Limit > 1 {
		p.count.Add(1)
	}
	return p.Source.List(ctx, options)
}
