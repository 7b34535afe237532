package e2e

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// grpcServer answers a unary call with the client's address.
type grpcServer struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (grpcServer) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	p, _ := peer.FromContext(ctx)
	return &grpc_testing.SimpleResponse{Username: p.Addr.String()}, nil
}

func (grpcServer) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	return &grpc_testing.Empty{}, nil
}

func serveGRPC(t *testing.T, p party) {
	t.Helper()
	for _, six := range []bool{false, true} {
		listener := p.Listen(t, p.at(six, webPort))
		server := grpc.NewServer()
		grpc_testing.RegisterTestServiceServer(server, grpcServer{})
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(listener)
		}()
		t.Cleanup(func() {
			server.Stop()
			<-served
		})
	}
}

func grpcClient(t *testing.T, from party, server netip.AddrPort) grpc_testing.TestServiceClient {
	t.Helper()
	client, err := grpc.NewClient("passthrough:///"+server.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return from.Dial(server, 5*time.Second) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return grpc_testing.NewTestServiceClient(client)
}

// TestGRPCRules allows one method of a gRPC service, to a pod of this node and of another one, and then the other
// method on the same connection.
func TestGRPCRules(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveGRPC(t, n.b)
	serveGRPC(t, n.d)
	rule := func(method string) string {
		return `{endpointSelector: {matchLabels: {app: a}}, egress: [{toPorts: [{ports: [{port: "8081", protocol: TCP}],
			rules: {http: [{method: POST, path: "/grpc.testing.TestService/` + method + `"}]}}]}]}`
	}
	for _, six := range []bool{false, true} {
		for _, to := range []party{n.b, n.d} {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			n.ciliumPolicy(rule("UnaryCall"))
			client := grpcClient(t, n.a, to.at(six, webPort))
			answer, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
			if err != nil {
				t.Fatalf("IPv6 %v, to %s: allowed method: %v", six, to.name, err)
			}
			source, err := netip.ParseAddrPort(answer.Username)
			if err != nil || source.Addr() != n.a.addr(six) || source.Port() < 61000 {
				t.Errorf("IPv6 %v: %s has seen %s, want the client's address and the proxy's ports", six, to.name, answer.Username)
			}
			if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("IPv6 %v, to %s: denied method: %v", six, to.name, err)
			}
			n.ciliumPolicy(rule("EmptyCall"))
			if _, err := client.EmptyCall(ctx, &grpc_testing.Empty{}); err != nil {
				t.Errorf("IPv6 %v, to %s: after the change: %v", six, to.name, err)
			}
			if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("IPv6 %v, to %s: denied after the change: %v", six, to.name, err)
			}
		}
	}
}
