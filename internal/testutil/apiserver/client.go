package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Client makes requests with one token.
type Client struct {
	server *Server
	token  string
	http   *http.Client
}

// Admin may do everything.
func (s *Server) Admin() *Client { return s.Client(adminToken) }

// Client makes requests with a token, from the namespace of the API server.
func (s *Server) Client(token string) *Client {
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return s.dial() },
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := s.dial()
			if err != nil {
				return nil, err
			}
			ca, err := os.ReadFile(s.CertFile())
			pool := x509.NewCertPool()
			if err != nil || !pool.AppendCertsFromPEM(ca) {
				_ = conn.Close()
				return nil, fmt.Errorf("CA of the API server: %w", err)
			}
			secure := tls.Client(conn, &tls.Config{RootCAs: pool, ServerName: s.addr.Addr().String()})
			return secure, secure.HandshakeContext(ctx)
		},
	}
	return &Client{s, token, &http.Client{Transport: transport, Timeout: time.Minute}}
}

// Config is for client-go in the test's process, as the administrator.
func (s *Server) Config() *rest.Config {
	return &rest.Config{
		Host: s.URL, BearerToken: adminToken, TLSClientConfig: rest.TLSClientConfig{CAFile: s.CertFile()},
		Dial: func(context.Context, string, string) (net.Conn, error) { return s.dial() },
	}
}

// CertFile has the certificate of the server, and its CA. The server writes it when it first starts.
func (s *Server) CertFile() string { return s.file("apiserver.crt") }

// KeyFile has the key of the certificate.
func (s *Server) KeyFile() string { return s.file("apiserver.key") }

// Close closes connections that no request uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Content types of patches.
const (
	applyPatch = "application/apply-patch+yaml"
	MergePatch = "application/merge-patch+json"
	JSONPatch  = "application/json-patch+json"
)

// Do makes a request with a body of JSON, unless it is nil, and decodes the answer, unless into is nil. An answer that
// tells of a failure is an error of [apierrors].
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	return c.request(ctx, method, path, "application/json", body, into)
}

// Patch changes an object.
func (c *Client) Patch(ctx context.Context, path, contentType string, patch any) error {
	return c.request(ctx, http.MethodPatch, path, contentType, patch, nil)
}

func (c *Client) request(ctx context.Context, method, path, contentType string, body, into any) error {
	text, ok := body.(string)
	if !ok && body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = string(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server.URL+path, strings.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		var status metav1.Status
		if json.Unmarshal(answer, &status) != nil {
			return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
		}
		return &apierrors.StatusError{ErrStatus: status}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// Path returns where the API has an object.
func Path(object *unstructured.Unstructured) string {
	gvk := object.GroupVersionKind()
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	path := "/apis/" + gvk.GroupVersion().String()
	if gvk.Group == "" {
		path = "/api/" + gvk.Version
	}
	if namespace := object.GetNamespace(); namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + gvr.Resource + "/" + object.GetName()
}

// TryApply creates or changes the objects of a manifest, and returns what the API then has.
func (c *Client) TryApply(ctx context.Context, manifest string) (objects []*unstructured.Unstructured, _ error) {
	for document := range strings.SplitSeq("\n"+manifest, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return objects, err
		}
		if len(object.Object) == 0 {
			continue
		}
		path := Path(object) + "?fieldManager=test&force=true&fieldValidation=Strict"
		if err := c.request(ctx, http.MethodPatch, path, applyPatch, document, &object.Object); err != nil {
			return objects, fmt.Errorf("apply %s: %w", path, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Apply is TryApply that fails the test. It returns the last object.
func (c *Client) Apply(t testing.TB, manifest string) (last *unstructured.Unstructured) {
	t.Helper()
	objects, err := c.TryApply(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	return objects[len(objects)-1]
}

// ApplyFile applies a file.
func (c *Client) ApplyFile(t testing.TB, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(bytes.TrimSpace(text)))
}

// Delete deletes an object, at once. One that is gone is a success.
func (c *Client) Delete(t testing.TB, path string) {
	t.Helper()
	err := c.Do(t.Context(), http.MethodDelete, path, map[string]any{"gracePeriodSeconds": 0}, nil)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("delete %s: %v", path, err)
	}
}
