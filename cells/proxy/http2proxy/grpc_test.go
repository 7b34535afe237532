package http2proxy

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/httpproxy"
	"porin.dev/porin/cells/proxy/proxytest"
)

// grpcServer answers with what it is sent.
type grpcServer struct {
	grpc_testing.UnimplementedTestServiceServer
}

func (grpcServer) UnaryCall(ctx context.Context, r *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get("x-wait"); len(values) > 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	grpc.SetHeader(ctx, metadata.Pairs("x-head", "head"))
	grpc.SetTrailer(ctx, metadata.Pairs("x-trailer-bin", "\x00\x01"))
	if s := r.GetResponseStatus(); s != nil {
		return nil, status.Error(codes.Code(s.Code), s.Message)
	}
	return &grpc_testing.SimpleResponse{Payload: r.Payload}, nil
}

func (grpcServer) StreamingOutputCall(r *grpc_testing.StreamingOutputCallRequest, s grpc_testing.TestService_StreamingOutputCallServer) error {
	for _, p := range r.ResponseParameters {
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: payload(int(p.Size))}); err != nil {
			return err
		}
	}
	return nil
}

func (grpcServer) StreamingInputCall(s grpc_testing.TestService_StreamingInputCallServer) error {
	sum := 0
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&grpc_testing.StreamingInputCallResponse{AggregatedPayloadSize: int32(sum)})
		}
		if err != nil {
			return err
		}
		sum += len(r.Payload.Body)
	}
}

func (grpcServer) FullDuplexCall(s grpc_testing.TestService_FullDuplexCallServer) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{Payload: r.Payload}); err != nil {
			return err
		}
	}
}

func payload(n int) *grpc_testing.Payload { return &grpc_testing.Payload{Body: make([]byte, n)} }

// newGRPC starts a server, a proxy before it, and a client of the proxy.
func newGRPC(t *testing.T) (*proxy, grpc_testing.TestServiceClient) {
	t.Helper()
	l := proxytest.Listen(t)
	server := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(server, grpcServer{})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	p := newProxy(t, l.Addr().String(), Limits{})
	return p, grpcClient(t, p)
}

func grpcClient(t *testing.T, p *proxy) grpc_testing.TestServiceClient {
	t.Helper()
	c, err := grpc.NewClient(p.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return grpc_testing.NewTestServiceClient(c)
}

func TestGRPCUnary(t *testing.T) {
	p, c := newGRPC(t)
	for _, size := range []int{0, 10, 100_000, 3 << 20} {
		var head, trailer metadata.MD
		r, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: payload(size)}, grpc.Header(&head), grpc.Trailer(&trailer))
		if err != nil || len(r.Payload.Body) != size {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if strings.Join(head.Get("x-head"), "") != "head" || strings.Join(trailer.Get("x-trailer-bin"), "") != "\x00\x01" {
			t.Errorf("header %v, trailer %v", head, trailer)
		}
	}
	_, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{ResponseStatus: &grpc_testing.EchoStatus{Code: 5, Message: "not there"}})
	if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "not there" {
		t.Errorf("the server's status: %v", s)
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	p.noStreams()
}

func TestGRPCStreams(t *testing.T) {
	p, c := newGRPC(t)
	out, err := c.StreamingOutputCall(t.Context(), &grpc_testing.StreamingOutputCallRequest{ResponseParameters: []*grpc_testing.ResponseParameters{
		{Size: 1}, {Size: 1 << 20}, {Size: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for {
		r, err := out.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sum += len(r.Payload.Body)
	}
	if sum != 1<<20+101 {
		t.Errorf("the server's stream had %d bytes", sum)
	}
	in, err := c.StreamingInputCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := in.Send(&grpc_testing.StreamingInputCallRequest{Payload: payload(50_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := in.CloseAndRecv(); err != nil || r.AggregatedPayloadSize != 5_000_000 {
		t.Errorf("the client's stream: %v, %v", r, err)
	}
	both, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if err := both.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
		if r, err := both.Recv(); err != nil || len(r.Payload.GetBody()) != i {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := both.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the stream: %v", err)
	}
	p.noStreams()
}

func TestGRPCDeny(t *testing.T) {
	p, c := newGRPC(t)
	p.allow(model.HTTPRule{Method: "POST", Path: "/grpc.testing.TestService/UnaryCall"})
	if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: payload(1)}); err != nil {
		t.Errorf("allowed: %v", err)
	}
	stream, err := c.StreamingInputCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = stream.Send(&grpc_testing.StreamingInputCallRequest{Payload: payload(50_000)})
	}
	_, err = stream.CloseAndRecv()
	if s := status.Convert(err); s.Code() != codes.PermissionDenied || s.Message() != httpproxy.ReasonNoRule.Text() {
		t.Errorf("denied: %v", err)
	}
	if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: payload(1)}); err != nil {
		t.Errorf("allowed: %v", err)
	}
	p.allow()
	if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: payload(1)}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("after a change: %v", err)
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestGRPCDeadline has the server learn of it by itself, and of a cancellation by the client's RST_STREAM.
func TestGRPCDeadline(t *testing.T) {
	p, c := newGRPC(t)
	wait := metadata.AppendToOutgoingContext(t.Context(), "x-wait", "1")
	ctx, cancel := context.WithTimeout(wait, 100*time.Millisecond)
	defer cancel()
	if _, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(wait)
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); status.Code(err) != codes.Canceled {
		t.Errorf("canceled: %v", err)
	}
	if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}); err != nil {
		t.Errorf("on the same connection: %v", err)
	}
	if n := p.dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	p.noStreams()
}

func TestGRPCUnavailable(t *testing.T) {
	l := proxytest.Listen(t)
	l.Close()
	p := newProxy(t, l.Addr().String(), Limits{})
	_, err := grpcClient(t, p).UnaryCall(t.Context(), &grpc_testing.SimpleRequest{})
	if s := status.Convert(err); s.Code() != codes.Unavailable || s.Message() != httpproxy.ReasonDial.Text() {
		t.Errorf("%v", err)
	}
}

// TestGRPCDrain ends no call while one session after another is drained.
func TestGRPCDrain(t *testing.T) {
	p, c := newGRPC(t)
	stream, err := c.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		for range 100 {
			if _, err := c.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{Payload: payload(10)}); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		p.mu.Lock()
		for _, s := range p.sessions {
			s.Drain()
		}
		p.mu.Unlock()
		if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: payload(10)}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	p.ended(5)
}
