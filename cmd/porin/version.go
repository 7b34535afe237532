package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"porin.dev/porin/internal/version"
)

// build says what this program was made of.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func showVersion(_ context.Context, s *session, _ []string) error {
	b := build{Version: version.Of(), Go: runtime.Version()}
	return s.print(b, func(w io.Writer) { _, _ = fmt.Fprintf(w, "porin %s, %s\n", b.Version, b.Go) })
}
