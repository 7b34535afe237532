package rtnl

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// frame is a whole netlink message.
func frame(typ uint16, seq uint32, body []byte) []byte {
	var m message
	m.u32s(uint32(headerLen + len(body)))
	m.u16s(typ, 0)
	m.u32s(seq, 0)
	m.buf = append(m.buf, body...)
	return append(m.buf, make([]byte, align(len(body))-len(body))...)
}

func ackBody(errno unix.Errno) []byte {
	var m message
	m.u32s(uint32(-int32(errno)))
	return append(m.buf, make([]byte, headerLen)...)
}

func linkBody(alias string) []byte {
	var m message
	m.ifinfo(unix.IfInfomsg{Index: 3})
	m.attr(unix.IFLA_IFALIAS, append([]byte(alias), 0))
	return m.buf
}

// FuzzTake reads foreign bytes as the kernel's answer: no panic and no endless loop.
func FuzzTake(f *testing.F) {
	f.Add(append(frame(unix.RTM_NEWLINK, 1, linkBody("alias")), frame(unix.NLMSG_ERROR, 1, ackBody(unix.EEXIST))...))
	f.Add([]byte{16, 0, 0, 0})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		var link Link
		done, err := LinkByName("eth0", &link).take(datagram, 1)
		if _, refused := errors.AsType[unix.Errno](err); err != nil && !errors.Is(err, errMalformed) && !(refused && done) {
			t.Errorf("done %t, error %v", done, err)
		}
	})
}

func TestTake(t *testing.T) {
	var link Link
	r := LinkByName("eth0", &link)
	givenUp := frame(unix.NLMSG_ERROR, 6, ackBody(unix.EPERM))
	if done, err := r.take(append(givenUp, frame(unix.RTM_NEWLINK, 7, linkBody("alias"))...), 7); done || err != nil {
		t.Errorf("before the acknowledgement: done %t, error %v", done, err)
	}
	if done, err := r.take(frame(unix.NLMSG_ERROR, 7, ackBody(0)), 7); !done || err != nil {
		t.Errorf("acknowledged: done %t, error %v", done, err)
	}
	if want := (Link{Index: 3, Alias: "alias"}); link != want {
		t.Errorf("link %+v, want %+v", link, want)
	}
	done, err := r.take(frame(unix.NLMSG_ERROR, 7, ackBody(unix.ENODEV)), 7)
	if !done || !errors.Is(err, unix.ENODEV) {
		t.Errorf("refused: done %t, error %v", done, err)
	}
}
