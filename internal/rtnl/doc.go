// Package rtnl makes the few route-netlink requests that Porin needs for each pod, several in one system call.
//
//	conn, err := rtnl.Dial()                          // or DialAt(netns): a socket belongs to one namespace for life
//	var host rtnl.Link
//	err = conn.Do(
//		rtnl.NewVeth(rtnl.Veth{...}),                 // each Request is one netlink message ...
//		rtnl.LinkByName("porabc", &host),             // ... and they are done in this order
//	)
//	if errors.Is(err, unix.EEXIST) { ... }            // err names the request, the errno, and what the kernel said
//
// It imports next to nothing on purpose: the CNI plugin, a process that starts for every pod, pays for each package
// that it links.
//
// # Adding a request
//
// A request is a function that returns a [Request]: what it is, in words for an error; the message type and flags
// (NLM_F_REQUEST and NLM_F_ACK are added); the body, put together with a [message]; and, if it is answered by more than an
// acknowledgement, a function that takes the answer apart:
//
//	func linkGroup(index int, group uint32) Request {
//		var m message
//		m.ifinfo(unix.IfInfomsg{Index: int32(index)}) // the fixed header; the raw form is m.u8s, m.u16s, m.u32s
//		m.attrU32(unix.IFLA_GROUP, group)             // attributes, padded
//		m.nest(unix.IFLA_LINKINFO, func() {           // attributes in an attribute
//			m.attrString(unix.IFLA_INFO_KIND, "veth") // zero terminated
//		})
//		return Request{What: "set link group", Type: unix.RTM_SETLINK, Flags: 0, Body: m.bytes()}
//	}
//
// Answers are read with eachAttr, which hands over one attribute after the other and refuses what is malformed.
// A list that the kernel gives in parts is a request run through list, which returns what a parse function makes of each part.
package rtnl
