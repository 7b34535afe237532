// Package rtnl takes links down, deletes them and hears of their end, by route netlink: what
// github.com/vishvananda/netlink cannot do (a link group), or must not do (the CNI plugin, a process that starts for
// every pod, pays for each package that it links). All else uses that library. docs/adr/0019 has the figures.
//
//	conn, err := rtnl.Dial()                          // in the namespace of the calling thread, for life
//	var host rtnl.Link
//	err = conn.Do(rtnl.LinkByName("porabc", &host))   // errors.Is(err, unix.ENODEV): there is none
//	err = conn.Do(rtnl.LinkDownAndGroup(host.Index, group))
//	err = conn.Do(rtnl.DelLinkGroup(group))           // blocks; [LinkWatch] knows sooner that the link is gone
//
// It imports next to nothing on purpose.
package rtnl
