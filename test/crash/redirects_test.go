package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
)

// redirectPort is where pods serve HTTP behind layer 7 rules.
const redirectPort = 8080

// layer7Policies let the pods of both namespaces, beside their node, ask residents for one path. Their requests go
// through the proxy.
func layer7Policies() (text string) {
	for _, namespace := range []string{residents, guests} {
		text += fmt.Sprintf(`
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: layer7, namespace: %s}
spec:
  endpointSelector: {}
  egress:
  - toEntities: [host]
  - toEndpoints: [{matchLabels: {io.kubernetes.pod.namespace: %s}}]
    toPorts: [{ports: [{port: "%d", protocol: TCP}], rules: {http: [{method: GET, path: "/yes"}]}}]
`, namespace, residents, redirectPort)
	}
	return text
}

// letIn has residents accept what layer 7 rules let pass.
const letIn = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: residents}
spec: {podSelector: {}, ingress: [{ports: [{port: 8080}]}]}
`

// redirected is the operation with pods whose connections to each other go through the proxy.
func redirected(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		s.serveRedirected()
		s.restrict(layer7Policies())
		s.redirects = true
		return of(s)
	}
}

// serveRedirected has the first pod serve HTTP.
func (s *scene) serveRedirected() {
	s.t.Helper()
	s.restrict(letIn)
	server := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	s.t.Cleanup(func() { _ = server.Close() })
	for _, addr := range []netip.Addr{s.live[0].IPv4, s.live[0].IPv6} {
		l := s.live[0].Listen(s.t, netip.AddrPortFrom(addr, redirectPort))
		go func() { _ = server.Serve(l) }()
	}
}

// redirectsWork asks the first pod from the second one, soon after an agent's start.
func (s *scene) redirectsWork() (err error) {
	if !s.redirects {
		return nil
	}
	for deadline := time.Now().Add(settle); ; time.Sleep(between) {
		if err = s.askRedirected(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (s *scene) askRedirected() error {
	transport := &http.Transport{DisableKeepAlives: true}
	transport.DialContext = func(_ context.Context, _, to string) (net.Conn, error) {
		return s.live[1].Dial(netip.MustParseAddrPort(to), time.Second)
	}
	web := http.Client{Transport: transport, Timeout: 2 * time.Second}
	for _, addr := range []netip.Addr{s.live[0].IPv4, s.live[0].IPv6} {
		for path, want := range map[string]int{"/yes": http.StatusOK, "/no": http.StatusForbidden} {
			answer, err := web.Get("http://" + netip.AddrPortFrom(addr, redirectPort).String() + path)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				return err
			}
			if answer.StatusCode != want {
				return fmt.Errorf("GET %s of %s: status %d, want %d", path, addr, answer.StatusCode, want)
			}
		}
	}
	return nil
}

// agentRedirect kills the agent while it applies the first layer 7 rules and opens the way into the proxy. Afterwards
// the rules apply as a whole or not at all, and applying them again succeeds.
func agentRedirect(s *scene) operation {
	s.serveRedirected()
	return operation{
		victim:  s.agents,
		prepare: func() error { return errors.Join(s.tryRestrict(layer7Policies()), s.unredirect()) },
		run:     func() { _ = s.tryRestrict(layer7Policies()) },
		judge: func() error {
			if err := errors.Join(s.agentDies(), s.restart(), s.tryRestrict(layer7Policies())); err != nil {
				return err
			}
			s.redirects = true
			return s.check("with the policies", nil)
		},
	}
}

// unredirect ends all layer 7 rules, and removes the way into the proxy, which an agent would do after a while.
func (s *scene) unredirect() error {
	s.redirects = false
	if err := s.deleteLayer7(); err != nil {
		return err
	}
	s.agent.End()
	err := s.node.Do(func() error {
		text, err := exec.Command("sh", "-c", "ip link del porin-l7; nft delete table inet porin-proxy; for f in -4 -6; do for p in 90 91 92; do ip $f rule del pref $p; done; done").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("remove the way into the proxy: %w: %s", err, text)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(filepath.Join(s.node.BPFRoot, "proxy")), s.restart())
}

func (s *scene) tryRestrict(manifests string) error {
	api := client.New(s.node.Socket)
	defer api.Close()
	_, err := api.PutPolicies(s.t.Context(), []byte(manifests))
	return err
}

// deleteLayer7 does not mind policies that are not there.
func (s *scene) deleteLayer7() error {
	api := client.New(s.node.Socket)
	defer api.Close()
	var errs []error
	for _, namespace := range []string{residents, guests} {
		err := api.DeletePolicy(s.t.Context(), "CiliumNetworkPolicy", namespace, "layer7")
		if problem, ok := errors.AsType[*v1.Problem](err); !ok || problem.Code != v1.CodeNotFound {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
