package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"porin.dev/porin/internal/version"
)

// Forms in which a client asks for objects.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
	// metadataAlone asks for the metadata of one object.
	metadataAlone = protobuf + ";g=meta.k8s.io;v=v1;as=PartialObjectMetadata"
)

// Client is the connection to the API server. It reads tokens and CAs from their files again when they change.
type Client struct {
	config   *rest.Config
	http     *http.Client
	codecs   serializer.CodecFactory
	servers  *servers // where requests go
	requests *prometheus.CounterVec
}

// NewClient reads the configuration. It makes no connection.
func NewClient(cfg Config) (*Client, error) {
	config, err := restConfig(cfg)
	if err != nil {
		return nil, err
	}
	return NewClientFor(config, cfg.Servers)
}

// NewClientFor makes the client of a configuration that the caller has read. servers can be empty.
func NewClientFor(config *rest.Config, servers []string) (*Client, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = filepath.Base(os.Args[0]) + "/" + version.Of()
	config.QPS = -1 // loops pause by themselves
	list, err := newServers(config.Host, servers)
	if err != nil {
		return nil, err
	}
	requests := newRequests()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{requests, list.over(next)} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return &Client{config, client, serializer.NewCodecFactory(scheme), list, requests}, nil
}

func restConfig(cfg Config) (*rest.Config, error) {
	if cfg.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("kubernetes: the pod's service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: cfg.Context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return config, nil
}

// Core reads kinds of the group "" in protobuf.
func (c *Client) Core() (rest.Interface, error) {
	return c.of(corev1.SchemeGroupVersion, "/api", protobuf)
}

// Metadata reads the metadata of objects of another group, in protobuf.
func (c *Client) Metadata(version schema.GroupVersion) (rest.Interface, error) {
	return c.of(version, "/apis", protobuf)
}

// Group reads kinds of another group as JSON.
func (c *Client) Group(version schema.GroupVersion) (rest.Interface, error) {
	return c.of(version, "/apis", asJSON)
}

func (c *Client) of(version schema.GroupVersion, path, form string) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath = path
	config.ContentConfig = rest.ContentConfig{
		GroupVersion: &version, NegotiatedSerializer: c.codecs.WithoutConversion(), ContentType: form, AcceptContentTypes: form,
	}
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// callTimeout bounds a request for one object.
const callTimeout = 10 * time.Second

// Server is the address of the API server that requests go to now.
func (c *Client) Server() string { return c.servers.current().String() }

// Close closes connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// servers are the addresses of the API server. After a request without an answer, later requests use the next server.
type servers struct {
	list []*url.URL
	turn atomic.Uint64
}

func newServers(host string, list []string) (*servers, error) {
	if len(list) == 0 {
		list = []string{host}
	}
	s := &servers{}
	for _, text := range list {
		if !strings.Contains(text, "://") {
			text = "https://" + text
		}
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("API server %q: %w", text, err)
		}
		s.list = append(s.list, u)
	}
	return s, nil
}

func (s *servers) current() *url.URL { return s.list[s.turn.Load()%uint64(len(s.list))] }

func (s *servers) over(next http.RoundTripper) http.RoundTripper { return roundTripper{s, next} }

type roundTripper struct {
	*servers
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	turn := r.turn.Load()
	server := r.list[turn%uint64(len(r.list))]
	request = request.Clone(request.Context())
	request.URL.Scheme, request.URL.Host, request.Host = server.Scheme, server.Host, server.Host
	response, err := r.next.RoundTrip(request)
	if err != nil && !errors.Is(request.Context().Err(), context.Canceled) {
		r.turn.CompareAndSwap(turn, turn+1) // one of several requests that fail at once
	}
	return response, err
}

// cause is the part of the error that does not depend on the request and its connection.
func cause(err error) error {
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return failed.Err
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status
	}
	return err
}

// remedy is the error with what to do about it.
func remedy(err error) string {
	switch unknown, _ := errors.AsType[x509.UnknownAuthorityError](err); {
	case unknown.Cert != nil:
		return fmt.Sprintf("%v: the CA in the kubeconfig or of the service account is not the API server's: correct it", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Sprintf("%v: the API server does not take the agent's token or certificate: renew it", err)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("%v: bind the agent's account to a role that may list and watch it", err)
	}
	return err.Error()
}

// counted counts the requests that go through a transport.
type counted struct {
	requests *prometheus.CounterVec
	next     http.RoundTripper
}

func newRequests() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "porin_kubernetes_requests_total", Help: "Requests to the Kubernetes API server, by verb, kind and the answer's code (\"none\" without an answer).",
	}, []string{"verb", "kind", "code"})
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	code := "none"
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	verb, kind := verbAndKind(request)
	c.requests.WithLabelValues(verb, kind, code).Inc()
	return response, err
}

// verbAndKind are the API's names of what a request does, and of the resource that it is about: "watch" and "pods".
func verbAndKind(request *http.Request) (verb, kind string) {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	switch { // /api/VERSION or /apis/GROUP/VERSION
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return strings.ToLower(request.Method), "other"
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	named := len(parts) > 1
	switch {
	case request.Method == http.MethodGet && request.URL.Query().Get("watch") == "true":
		verb = "watch"
	case request.Method == http.MethodGet && !named:
		verb = "list"
	case request.Method == http.MethodPost:
		verb = "create"
	case request.Method == http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(request.Method)
	}
	return verb, parts[0]
}
