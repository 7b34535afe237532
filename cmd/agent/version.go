package main

import "runtime/debug"

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// Version is the released version, or the commit that the binary was built from.
func Version() string {
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
