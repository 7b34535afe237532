package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"k8s.io/client-go/rest"
)

// maxLog bounds the log of one container, in bytes.
const maxLog = 1 << 20

// installedPaths are lists of what runs Porin, in the namespace of the agents.
var installedPaths = map[string]string{
	"porin-pods": "/api/v1/namespaces/%s/pods?labelSelector=app.kubernetes.io%%2Fname+in+%%28porin-agent%%2Cporin-proxy%%29",
	"daemonsets": "/apis/apps/v1/namespaces/%s/daemonsets?labelSelector=app.kubernetes.io%%2Fname+in+%%28porin-agent%%2Cporin-proxy%%29",
}

// objectPaths are the other lists that an archive has, by name.
var objectPaths = map[string]string{
	"nodes":           "/api/v1/nodes",
	"events":          "/api/v1/events?limit=2000&fieldSelector=involvedObject.kind%3DPod",
	"node-events":     "/api/v1/events?limit=2000&fieldSelector=involvedObject.kind%3DNode",
	"porinnodes":      "/apis/porin.dev/v1alpha1/porinnodes",
	"porinnetworks":   "/apis/porin.dev/v1alpha1/porinnetworks",
	"porinpools":      "/apis/porin.dev/v1alpha1/porinpools",
	"porinblocks":     "/apis/porin.dev/v1alpha1/porinblocks",
	"porinclusters":   "/apis/porin.dev/v1alpha1/porinclusters",
	"networkpolicies": "/apis/networking.k8s.io/v1/networkpolicies",
}

// Objects implements Cluster.
func (a *APIServer) Objects() []string {
	return slices.Sorted(maps.Keys(a.paths()))
}

func (a *APIServer) paths() map[string]string {
	paths := maps.Clone(objectPaths)
	for name, path := range installedPaths {
		paths[name] = fmt.Sprintf(path, a.namespace)
	}
	return paths
}

// Object implements Cluster.
func (a *APIServer) Object(ctx context.Context, name string) ([]byte, error) {
	text, err := answer(ctx, a.core.Get().AbsPath("/").RequestURI(a.paths()[name]))
	if err != nil {
		return nil, explained(err, "list "+name)
	}
	return text, nil
}

// answer is the answer to a request as JSON.
func answer(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.SetHeader("Accept", "application/json").MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // Raw's error lacks the server's reason
		return nil, err
	}
	return result.Raw()
}

// Logs implements Cluster.
func (a *APIServer) Logs(ctx context.Context, pod Pod, previous bool) ([]byte, error) {
	request := a.core.Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("log").
		Param("container", pod.Container).Param("tailLines", "5000").Param("limitBytes", strconv.Itoa(maxLog)).Param("timestamps", "true")
	if previous {
		request = request.Param("previous", "true")
	}
	stream, err := request.MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, explained(err, "read the log of pod "+pod.Name)
	}
	defer func() { _ = stream.Close() }()
	return io.ReadAll(io.LimitReader(stream, maxLog)) // the kubelet may send more than it was asked for
}

// Request implements Cluster.
func (a *APIServer) Request(ctx context.Context, method, path string, body, into any) error {
	request := a.core.Verb(method).RequestURI(path)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		request = request.SetHeader("Content-Type", "application/json").Body(text)
	}
	text, err := answer(ctx, request)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}
