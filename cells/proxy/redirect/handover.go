package redirect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/fd"
	"porin.dev/porin/internal/flock"
)

// ErrInUse is returned when another process is the proxy.
var ErrInUse = fault.New(fault.Conflict, "another process is the proxy of this node: stop it, or have it handed over")

// errHandedOver is returned instead of removing what another process takes over.
var errHandedOver = errors.New("another process is taking over as the proxy")

// Handover is given to the process that becomes the next proxy. Its holder closes it.
type Handover struct {
	Sockets Sockets  // none when the way is not open
	Lock    *os.File // of the folder of the pin; nil when the way is not open
}

// Close closes everything.
func (h Handover) Close() error {
	err := h.Sockets.Close()
	if h.Lock != nil {
		err = errors.Join(err, h.Lock.Close())
	}
	return err
}

// TakeOver has the next Open use what another process gave, instead of sockets and a lock of its own. It keeps what it
// is given first: further sockets, such as the same ones from who holds copies, are closed, and so are those for a way
// that is open.
func (r *Redirect) TakeOver(given Handover) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners != nil || len(r.given.Sockets) > 0 || r.given.Lock != nil {
		return given.Close()
	}
	r.given = given
	return nil
}

// HandOver returns copies for the process that takes the place of this one, which goes on accepting. Until
// AbortHandover, nothing is compared or repaired: the other process attaches a program of its own.
func (r *Redirect) HandOver() (Handover, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listeners == nil {
		return Handover{}, nil
	}
	sockets, err := r.listeners.Sockets()
	if err != nil {
		return Handover{}, err
	}
	lock, err := fd.Duplicate(r.lock, "lock of the folder of the pin")
	if err != nil {
		return Handover{}, errors.Join(err, sockets.Close())
	}
	r.handedOver = true
	return Handover{sockets, lock}, nil
}

// AbortHandover takes HandOver back: the other process has not taken over.
func (r *Redirect) AbortHandover() error {
	r.mu.Lock()
	r.handedOver = false
	r.mu.Unlock()
	return r.Repair()
}

// Release lets another process be the proxy, while this one's open connections go on. A proxy calls it that does not
// accept any more, and changes nothing in the kernel from now on.
func (r *Redirect) Release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock == nil {
		return nil
	}
	err := r.lock.Close()
	r.lock, r.handedOver = nil, true
	return err
}

func (c Config) pin() string { return filepath.Join(c.BPFRoot, "proxy", "select_listener") }

// lockFolder makes the folder of the pin this process's alone, until the file is closed in all processes that have it.
func (c Config) lockFolder() (*os.File, error) {
	folder := filepath.Dir(c.pin())
	for {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		file, err := os.Open(folder)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = flock.Try(file)
		if errors.Is(err, flock.ErrLocked) {
			err = ErrInUse
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", folder, err), file.Close())
		}
		// Its owner may have removed the folder before this process has locked it.
		locked, err := file.Stat()
		there, thereErr := os.Stat(folder)
		if err = errors.Join(err, thereErr); err == nil && os.SameFile(locked, there) {
			return file, nil
		}
		if err := errors.Join(err, file.Close()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
}
