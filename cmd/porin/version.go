package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// build says what this program was made of.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

func showVersion(_ context.Context, s *session, _ []string) error {
	b := build{Version: buildVersion(), Go: runtime.Version()}
	return s.print(b, func(w io.Writer) { _, _ = fmt.Fprintf(w, "porin %s, %s\n", b.Version, b.Go) })
}

// buildVersion is the released version, or the commit that the program was built from.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return "devel-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "devel"
}
