// Package spec is the plugin's side of the CNI specification (versions 0.3.0 to 1.1.0): what a runtime hands to a
// plugin, checked, and what it gets back.
//
//	environment, stdin -> [Read] -> [Call] -> ... -> [Result] -> stdout
//	                                           `---> [Error]  -> stdout, exit code 1
//
// It takes the place of the reference skeleton because that costs half a millisecond for each pod, a sixth of an ADD, most
// of it in the packages that it links.
package spec
