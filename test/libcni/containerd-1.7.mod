module porin.dev/porin/test/libcni

go 1.26.0

require (
	github.com/containerd/go-cni v1.1.9
	github.com/containernetworking/cni v1.1.2
)
