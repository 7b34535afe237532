// Package version says which version a binary is of.
package version

import "runtime/debug"

// linked is set by the linker: -ldflags "-X porin.dev/porin/internal/version.linked=v1.2.3".
var linked string

// Of is the released version of this binary, or the commit that it was built from.
func Of() string {
	if linked != "" {
		return linked
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
