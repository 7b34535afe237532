package rtnl

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ErrInterrupted is the end of a list that changed each time the kernel gave it: all that is in it was there, and what
// was there all the time may be missing.
var ErrInterrupted = errors.New("the list changed while it was read")

// maxLists bounds how often a list is read again because it changed meanwhile.
const maxLists = 20

// list runs the request as a dump and returns what parse makes of each part. A list that changed while the kernel gave
// it is read again; the result is whole, but for [ErrInterrupted].
func list[T any](c *Conn, r Request, parse func(body []byte) (T, error)) (items []T, err error) {
	r.Flags |= unix.NLM_F_DUMP
	r.Answer = func(_ uint16, body []byte) error {
		item, err := parse(body)
		if err == nil {
			items = append(items, item)
		}
		return err
	}
	for range maxLists {
		items = nil
		if err = c.Do(r); !errors.Is(err, ErrInterrupted) {
			break
		}
	}
	if err != nil && !errors.Is(err, ErrInterrupted) {
		return nil, err
	}
	return items, err
}
