module porin.dev/porin/test/bench

go 1.26.0

require (
	github.com/containernetworking/cni v1.3.1
	golang.org/x/sys v0.49.0
	porin.dev/porin v0.0.0
)

require (
	github.com/onsi/ginkgo/v2 v2.25.1 // indirect
	github.com/onsi/gomega v1.38.1 // indirect
	go.opentelemetry.io/otel v1.29.0 // indirect
	go.opentelemetry.io/otel/trace v1.29.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
)

replace porin.dev/porin => ../..
