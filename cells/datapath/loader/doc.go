// Package loader brings the datapath's BPF programs and maps into the kernel, or finds them there.
//
//	datapath.Start -> [Loader.Lock] -> [Loader.Load] -> [Objects]: programs to attach, maps to write
//	                                                        | pinned below the BPF root
//	Prune          -> [Loader.PrunePins]                                                        porin bpf -> [Inspect]
//
// Below the root are maps/NAME, programs/DIGEST/NAME, and staging/, which is empty but while maps take the place of
// others. The digest names the compiled object and its configuration. Programs that are pinned under the digest are
// adopted when the kernel says that they are what the digest stands for; else they are loaded. Maps of another size
// than configured, or with other flags, are copied; the new map of connections is empty, and so are the
// map that counts its entries and the queue of its keys. Where the kernel's connection tracking is a module it is
// loaded before the programs, which ask it.
//
// Nothing here knows of network interfaces: [Loader.Load] hands programs that it has just loaded to a function that
// tries to attach them.
package loader
