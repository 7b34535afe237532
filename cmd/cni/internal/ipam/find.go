package ipam

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"porin.dev/porin/cmd/cni/internal/spec"
)

// Find looks for the plugin of a type in a list of folders. It is never the calling program itself, which would call
// itself for ever.
func Find(name, path string) (Plugin, *spec.Error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return Plugin{}, notFound(name, errors.New("a type has no path"))
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if dir == "" || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if own, err := os.Stat("/proc/self/exe"); err == nil && os.SameFile(own, info) {
			return Plugin{}, notFound(name, errors.New("it is this plugin itself"))
		}
		return Plugin{name: name, file: file}, nil
	}
	return Plugin{}, notFound(name, fmt.Errorf("it is not in CNI_PATH=%.200q", path))
}

func notFound(name string, why error) *spec.Error {
	return &spec.Error{
		Code: spec.BadConfig, Msg: fmt.Sprintf("find the IPAM plugin %.64q: %v", name, why),
		Hint: `install it, or correct "ipam" in the network configuration`,
	}
}
