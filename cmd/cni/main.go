// porin-cni is the CNI plugin of Porin. See the package plugin for what it does.
package main

import (
	"os"

	"porin.dev/porin/cmd/cni/internal/plugin"
)

func main() {
	os.Exit(plugin.Run(plugin.IO{Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}))
}
