package rtnl

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzReplies reads foreign bytes as the kernel's answers to a batch: no panic, no endless loop, and never an answer
// for a request that is done.
func FuzzReplies(f *testing.F) {
	var m message
	m.frame(unix.NLMSG_ERROR, 0, 1, make([]byte, 4+headerLen))
	m.frame(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, 2, ackBody(unix.EEXIST, "name taken"))
	m.frame(unix.RTM_NEWLINK, unix.NLM_F_MULTI, 3, linkBody("eth0"))
	m.frame(unix.NLMSG_DONE, unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR, 3, make([]byte, 4))
	f.Add(m.bytes())
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		in := newReplies(1, []Request{
			{What: "a", Answer: func(_ uint16, body []byte) error { _, err := parseLink(body); return err }},
			{What: "b", Answer: func(_ uint16, body []byte) error { _, err := parseRoute(body); return err }},
			{What: "c", Answer: func(_ uint16, body []byte) error {
				_, err := parseAddr(body)
				_, err2 := parseNeigh(body)
				return errors.Join(err, err2)
			}},
		})
		err := in.take(datagram)
		if in.pending < 0 || in.pending > 3 {
			t.Errorf("pending = %d", in.pending)
		}
		if err != nil && !errors.Is(err, errMalformed) {
			t.Errorf("error = %v", err)
		}
	})
}

func ackBody(errno unix.Errno, text string) []byte {
	var m message
	m.u32s(uint32(-int32(errno)))
	m.buf = append(m.buf, make([]byte, headerLen)...)
	m.attrString(unix.NLMSGERR_ATTR_MSG, text)
	return m.bytes()
}

func linkBody(name string) []byte {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: 3})
	m.attrString(unix.IFLA_IFNAME, name)
	m.nest(unix.IFLA_LINKINFO, func() { m.attrString(unix.IFLA_INFO_KIND, "veth") })
	return m.bytes()
}

func TestRepliesGoToTheirRequests(t *testing.T) {
	var m message
	m.frame(unix.NLMSG_ERROR, 0, 99, make([]byte, 4)) // of an exchange that was given up
	m.frame(unix.RTM_NEWLINK, 0, 8, linkBody("eth0"))
	m.frame(unix.NLMSG_ERROR, unix.NLM_F_ACK_TLVS|unix.NLM_F_CAPPED, 7, ackBody(unix.EEXIST, "name taken"))
	m.frame(unix.NLMSG_ERROR, 0, 8, make([]byte, 4))
	var link Link
	in := newReplies(7, []Request{{What: "create x"}, LinkByIndex(3, &link)})
	if err := in.take(m.bytes()); err != nil || in.pending != 0 {
		t.Fatalf("take: %v, pending %d", err, in.pending)
	}
	if err := in.errors().err(); err == nil || err.Error() != "create x: file exists (name taken)" {
		t.Errorf("error = %v", err)
	}
	if link.Index != 3 || link.Name != "eth0" || link.Kind != "veth" {
		t.Errorf("link = %+v", link)
	}
}

func TestMACsAreReadAndWritten(t *testing.T) {
	for text, ok := range map[string]bool{
		"02:00:5e:10:00:ff": true, "02:00:5e:10:00": false, "02-00-5e-10-00-ff": false, "0g:00:5e:10:00:ff": false, "": false,
		strings.Repeat("é", 8) + "x": false,
	} {
		mac, err := ParseMAC(text)
		if (err == nil) != ok || ok && mac.String() != text {
			t.Errorf("ParseMAC(%q) = %v, %v", text, mac, err)
		}
	}
}
