package control

import (
	"os"
	"sync"

	"porin.dev/porin/cells/proxy/redirect"
	"porin.dev/porin/internal/fd"
)

// heldSockets are copies of the proxy's listening sockets: while it is away, connections wait in them.
type heldSockets struct {
	mu   sync.Mutex // guards the field below
	held redirect.Sockets
}

// replace keeps sockets in place of others.
func (x *heldSockets) replace(sockets redirect.Sockets) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.held
	x.held = sockets
	return before.Close()
}

// close closes them.
func (x *heldSockets) close() error { return x.replace(nil) }

// copies returns copies of the sockets, and their indexes.
func (x *heldSockets) copies() (indexes []uint32, files []*os.File, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	indexes = indexesOf(x.held)
	for _, index := range indexes {
		file, err := fd.Duplicate(x.held[index], "listening socket of the proxy")
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files = append(files, file)
	}
	return indexes, files, nil
}
