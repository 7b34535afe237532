package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
)

// load adopts the programs that are pinned below root, or loads them and pins them after attach has succeeded.
func load(ctx context.Context, root string, attach func(*loader.Programs) error) (digest string, err error) {
	sizes := datapath.DefaultConfig()
	l := loader.New(loader.Config{
		Root: root, Object: bpf.EndpointObject(),
		MaxEndpoints: sizes.MaxEndpoints, MaxConnections: sizes.MaxConnections, MaxAddresses: sizes.MaxAddresses,
	}, slog.New(slog.DiscardHandler))
	lock, err := l.Lock(ctx)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	objects, err := l.Load(ctx, attach)
	if err != nil {
		return "", err
	}
	defer objects.Close() // pinned objects stay
	return objects.Digest, nil
}

func Example_loader() {
	attach := func(p *loader.Programs) error { return nil } // attach p.FromPod and p.ToPod to a device, as a trial
	_, err := load(context.Background(), os.TempDir(), attach)
	fmt.Println("a folder of another file system is refused:", errors.Is(err, loader.ErrNoBPFFS))
	// Output: a folder of another file system is refused: true
}
