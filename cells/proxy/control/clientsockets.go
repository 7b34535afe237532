package control

import (
	"os"
	"sync"

	"porin.dev/porin/cells/proxy/redirect"
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

// copies returns copies of the sockets, and their places.
func (x *heldSockets) copies() (places []uint32, files []*os.File, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	places = placesOf(x.held)
	for _, place := range places {
		file, err := duplicateFile(x.held[place])
		if err != nil {
			closeFiles(files)
			return nil, nil, err
		}
		files = append(files, file)
	}
	return places, files, nil
}
