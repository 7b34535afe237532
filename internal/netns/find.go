package netns

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Find opens the network namespaces that have these cookies, as far as a process is in them that the agent sees: see [InUse]. It looks at the first thread of
// each, until ctx ends. The caller closes the files.
func Find(ctx context.Context, cookies map[uint64]bool) (found map[uint64]*os.File, err error) {
	found = map[uint64]*os.File{}
	own, err := inode("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	seen := map[uint64]bool{own: true}
	for _, process := range slices.Backward(processes) {
		if _, err := strconv.Atoi(process.Name()); err != nil || ctx.Err() != nil || len(found) == len(cookies) {
			continue
		}
		path := filepath.Join("/proc", process.Name(), "ns/net")
		number, err := inode(path)
		if err != nil || seen[number] {
			continue // ended, or not ours to look into
		}
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		seen[number] = true
		cookie, err := Cookie(int(file.Fd()))
		if err != nil || !cookies[cookie] || found[cookie] != nil {
			file.Close()
			continue
		}
		found[cookie] = file
	}
	return found, nil
}

// CloseAll closes what [Find] has opened.
func CloseAll(found map[uint64]*os.File) {
	for file := range maps.Values(found) {
		file.Close()
	}
}
