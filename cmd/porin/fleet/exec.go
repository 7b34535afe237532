package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// ExitError is a command that ended with another code than 0.
type ExitError struct{ Code int }

// Error implements error.
func (e *ExitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Run implements Cluster. It uses WebSocket, and SPDY where a proxy or an API server before 1.30 does not know that.
func (a *APIServer) Run(ctx context.Context, pod Pod, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
	url := a.core.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").VersionedParams(&corev1.PodExecOptions{
		Container: pod.Container, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
	}, a.parameters).URL()
	websocket, err := remotecommand.NewWebSocketExecutor(a.config, "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(a.config, "POST", url)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
	if code, ok := errors.AsType[exec.CodeExitError](err); ok {
		return &ExitError{code.Code}
	}
	return withoutURL(err)
}

var quotedURL = regexp.MustCompile(`(Get|Post) "https://[^"]*": `)

// withoutURL removes the kubelet's URL, which has the pod and the command, from an error of the API server: the same
// fault of many nodes is one line.
func withoutURL(err error) error {
	if err == nil || !quotedURL.MatchString(err.Error()) {
		return err
	}
	return errors.New(quotedURL.ReplaceAllString(err.Error(), ""))
}
