// Package apiserver runs a real kube-apiserver inside a test, on an etcd of its own.
//
//	Node (agent) --> Fabric: kube-apiserver on 198.51.100.1:6443 --> etcd on a Unix socket
//	test's process --> kube-apiserver on 127.0.0.1:6443 --> etcd on a Unix socket
//
// The API server authorises by Node and RBAC. It keeps certificates, service-account keys and its audit log in a folder
// of the test, and ends with the test's process, whatever ends that.
package apiserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// EnvBinary and EnvEtcd name the kube-apiserver and its etcd, as make test-apiserver has them.
const EnvBinary, EnvEtcd = "PORIN_KUBE_APISERVER", "PORIN_ETCD"

const port = 6443

// Server is a kube-apiserver and its etcd.
type Server struct {
	URL string // for agents, https

	dir    string
	in     func(func() error) error // its namespace
	addr   netip.AddrPort
	etcd   *etcd
	binary string
	cmd    *exec.Cmd
	done   chan struct{}
	saved  int
}

// Start runs an API server in the fabric's namespace, and waits until it is ready. Without its binary the test is
// skipped.
func Start(t testing.TB, fabric *testutil.Fabric) *Server {
	t.Helper()
	return start(t, fabric.Do, testutil.OutsideIPv4)
}

// StartLocal is Start in the namespace of the test's process.
func StartLocal(t testing.TB) *Server {
	t.Helper()
	testutil.Root(t) // the namespace is the test's own
	return start(t, func(f func() error) error { return f() }, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

func start(t testing.TB, in func(func() error) error, addr netip.Addr) *Server {
	t.Helper()
	binary, etcdBinary := os.Getenv(EnvBinary), os.Getenv(EnvEtcd)
	for _, path := range []string{binary, etcdBinary} {
		if _, err := os.Stat(path); err != nil {
			t.Skip("needs a kube-apiserver and an etcd: make test-apiserver")
		}
	}
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{dir: dir, in: in, addr: netip.AddrPortFrom(addr, port), binary: binary}
	s.URL = "https://" + s.addr.String()
	if err := s.writeFiles(); err != nil {
		t.Fatal(err)
	}
	s.etcd = &etcd{binary: etcdBinary, dir: dir}
	t.Cleanup(s.etcd.stop)
	t.Cleanup(s.Stop)
	if err := s.etcd.start(); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	return s
}

func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// The administrator's token.
const adminToken = "admin"

// auditPolicy records what service accounts ask for.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

func (s *Server) writeFiles() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"sa.key":     string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})),
		"tokens.csv": adminToken + `,admin,admin,"system:masters"` + "\n",
		"audit.yaml": auditPolicy,
	} {
		if err := os.WriteFile(s.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the API server again, after Stop.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(s.binary,
		"--etcd-servers="+s.etcd.url(),
		"--bind-address="+s.addr.Addr().String(), "--secure-port="+strconv.Itoa(int(s.addr.Port())), "--cert-dir="+s.dir,
		"--advertise-address=192.0.2.250", // as 127.0.0.1 cannot be: see --endpoint-reconciler-type
		"--token-auth-file="+s.file("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--disable-admission-plugins=ServiceAccount", // which wants an account "default", as a controller creates it
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+s.file("sa.key"),
		"--service-account-signing-key-file="+s.file("sa.key"), "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
		"--audit-policy-file="+s.file("audit.yaml"), "--audit-log-path="+s.file("audit.log"),
	)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := s.in(cmd.Start); err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	s.cmd, s.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		defer close(done)
		_ = cmd.Wait()
	}(s.done)
	admin := s.Admin()
	defer admin.Close()
	err = testutil.Poll(testutil.Patience, func() error {
		select {
		case <-s.done:
			return nil // see below
		default:
		}
		return admin.Do(t.Context(), "GET", "/readyz", nil, nil)
	})
	select {
	case <-s.done:
		err = fmt.Errorf("it ended: %v", cmd.ProcessState)
	default:
	}
	if err != nil {
		log, _ := os.ReadFile(s.file("log"))
		t.Fatalf("the API server is not ready: %v; the end of its log:\n%s", err, log[max(0, len(log)-5000):])
	}
}

// Stop kills the API server, if it runs. Its etcd goes on.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.done
		s.cmd = nil
	}
}

// PID is the API server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Do runs f in the namespace of the API server.
func (s *Server) Do(f func() error) error { return s.in(f) }

// dial connects from the namespace of the API server.
func (s *Server) dial() (conn net.Conn, err error) {
	err = s.in(func() error {
		conn, err = net.Dial("tcp", s.addr.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return conn, nil
}
