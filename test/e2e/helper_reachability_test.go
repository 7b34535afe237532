package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// talk has one pod ask another by both families, again and again, until the function that it returns is called: that
// says how many datagrams were not answered.
func (c *nodeGroup) talk(from, to pod) func() (asked, lost int) { return c.talkAt(from, to, 7000) }

func (c *nodeGroup) talkAt(from, to pod, port uint16) func() (asked, lost int) {
	c.Helper()
	ctx, cancel := context.WithCancel(c.Context())
	type count struct{ asked, lost int }
	result := make(chan count, 2)
	for _, addr := range []netip.Addr{to.ipv4, to.ipv6} {
		at := netip.AddrPortFrom(addr, port)
		respond(c, to.Namespace, "server", at)
		d, err := openDialog(from.Namespace, "udp", 0, at, answerTime)
		if err != nil {
			c.Fatal(err)
		}
		go func() {
			var n count
			for err == nil && ctx.Err() == nil {
				n.asked++
				if _, failed := d.askWithin(fmt.Sprint(n.asked), 3*time.Second); failed != nil {
					n.lost++
					d.Close() // an answer that comes late is none to the next question
					d, err = openDialog(from.Namespace, "udp", 0, at, answerTime)
				}
			}
			if err == nil {
				d.Close()
			} else {
				n.lost = n.asked
			}
			result <- n
		}()
	}
	return func() (asked, lost int) {
		cancel()
		for range 2 {
			n := <-result
			asked, lost = asked+n.asked, lost+n.lost
		}
		return asked, lost
	}
}
