package plugin

import (
	"strconv"
	"strings"
	"time"

	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

const (
	maxAlias = 255 // IFALIASZ less the zero at its end
	beganKey = "began="
)

// noteOnLink writes on the host end whose it is and when its ADD began: so a call of an earlier life of the attachment,
// which comes late, knows without an agent that this link is not its own. The kernel takes no such note with the request
// that makes the link. A process that ends before it is written leaves a link that nobody spares.
func (a *adding) noteOnLink() {
	_ = a.node.Do(rtnl.SetAliasByIndex(a.host.Index, note(a.attachment(), a.began.boot)))
}

// note is "containerID:ifname began=NANOSECONDS". It leaves out an ID that is too long for an alias.
func note(a spec.Attachment, began time.Duration) string {
	when := beganKey + strconv.FormatInt(began.Nanoseconds(), 10)
	if whole := a.ContainerID + ":" + a.IfName + " " + when; len(whole) <= maxAlias {
		return whole
	}
	return when
}

// bornAfter tells whether the link is of an ADD that began later than that; not when it does not say.
func bornAfter(link rtnl.Link, began time.Duration) bool {
	last := link.Alias[strings.LastIndexByte(link.Alias, ' ')+1:]
	text, ok := strings.CutPrefix(last, beganKey)
	if !ok {
		return false
	}
	noted, err := strconv.ParseInt(text, 10, 64)
	return err == nil && time.Duration(noted) > began
}
