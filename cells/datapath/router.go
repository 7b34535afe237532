package datapath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/netns"
)

// The sysctls that make the node a router. Traffic between a container and the outside passes the
// node's stack; only traffic between containers does not need them.
const (
	forwardIPv4 = "net/ipv4/ip_forward"
	forwardIPv6 = "net/ipv6/conf/all/forwarding"
)

// router is the forwarding of packets by the network namespace of a node.
//
// IPv4 forwarding is enabled at the start, IPv6 forwarding before the first endpoint with an IPv6 address is attached
// or restored: with IPv6 forwarding the kernel ignores router advertisements on interfaces whose accept_ra is 1, and
// removes the default routes that it has from them (Documentation/networking/ip-sysctl.rst). A node whose containers
// have IPv4 alone need not become an IPv6 router, and on any other accept_ra becomes 2 first, which means also with
// forwarding.
type router struct {
	log       *slog.Logger
	namespace *os.File
	conf      *os.File // the folder net/ipv6/conf of the namespace; nil when the kernel has no IPv6

	mu   sync.Mutex // guards the field below; held while IPv6 forwarding is being enabled, for which all endpoints wait
	ipv6 bool       // an endpoint has had an IPv6 address, and forwarding was enabled for it
}

// startRouter enables IPv4 forwarding, and fails where sysctls cannot be written. The namespace must stay open until
// stop.
func startRouter(namespace *os.File, log *slog.Logger) (*router, error) {
	r := &router{log: log, namespace: namespace}
	err := r.inNamespace(func() (err error) {
		if r.conf, err = os.Open(sysctlPath("net/ipv6/conf")); absentFile(err) != nil {
			return err
		}
		return errors.Join(checkWritable(forwardIPv4), r.enable(forwardIPv4))
	})
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *router) stop() error {
	if r.conf == nil {
		return nil
	}
	return r.conf.Close()
}

// forward enables the forwarding that the endpoint needs. It comes before the endpoint's addresses lead anywhere.
func (r *router) forward(e Entry) error {
	if !e.Addresses.IPv6.IsValid() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ipv6 {
		return nil
	}
	if err := r.inNamespace(r.enableIPv6); err != nil {
		return err
	}
	r.ipv6 = true
	return nil
}

// ignoreAdvertisements makes the node ignore router advertisements of a container, also when the kernel's default for
// new links is 2. from_pod drops them; this holds without the filters, too.
//
// Every ADD waits for it: three system calls below an open folder take 7 µs, and entering the namespace would take 12
// more.
func (r *router) ignoreAdvertisements(hostEnd string) error {
	if r.conf == nil {
		return nil
	}
	return absentFile(writeFile(int(r.conf.Fd()), hostEnd+"/accept_ra", "0"))
}

// turnOnIPv6 is for a host end of an endpoint with an IPv6 address. It is off there where it is off on the node.
func (r *router) turnOnIPv6(hostEnd string) error {
	if err := writeFile(int(r.conf.Fd()), hostEnd+"/disable_ipv6", "0"); err != nil {
		return err
	}
	r.log.Info("IPv6 turned on", "ifname", hostEnd)
	return nil
}

// findings tells of the sysctls that are not as a router needs them. IPv6 counts since an endpoint has had an IPv6
// address.
func (r *router) findings() (findings []doctor.Finding, err error) {
	wanted := map[string]func() error{forwardIPv4: func() error { return r.enable(forwardIPv4) }}
	r.mu.Lock()
	if r.ipv6 {
		wanted[forwardIPv6] = r.enableIPv6
	}
	r.mu.Unlock()
	err = r.inNamespace(func() error {
		for _, sysctl := range slices.Sorted(maps.Keys(wanted)) {
			value, err := readSysctl(sysctl)
			if err != nil {
				return err
			}
			if value != "0" {
				continue
			}
			name := strings.ReplaceAll(sysctl, "/", ".")
			findings = append(findings, doctor.Finding{
				Kind: forwardingOff, Subject: name, Detail: name + " is 0 instead of 1",
				Repair: func(context.Context) error { return r.inNamespace(wanted[sysctl]) },
			})
		}
		return nil
	})
	return findings, err
}

// enableIPv6 runs in the node's namespace. An agent that ends between the two leaves a node that accepts what it
// accepted.
func (r *router) enableIPv6() error {
	value, err := readSysctl(forwardIPv6)
	if err != nil || value != "0" {
		return err
	}
	if err := r.keepAdvertisements(); err != nil {
		return fmt.Errorf("keep the default routes of router advertisements: %w", err)
	}
	return r.enable(forwardIPv6)
}

// checkWritable fails when sysctls cannot be written: then every ADD would fail.
func checkWritable(name string) error {
	file, err := os.OpenFile(sysctlPath(name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write sysctls of the node: %w", err)
	}
	return file.Close()
}

// enable runs in the node's namespace.
func (r *router) enable(name string) error {
	value, err := readSysctl(name)
	if err != nil || value != "0" {
		return err
	}
	if err := writeSysctl(name, "1"); err != nil {
		return fmt.Errorf("enable forwarding: %w; run sysctl -w %s=1 on the node", err, name)
	}
	r.log.Info("forwarding enabled", "sysctl", name)
	return nil
}

// keepAdvertisements lets the interfaces that accept router advertisements go on to do so with forwarding. It leaves
// alone what is 0 or 2, interfaces that forward already, and the values for new interfaces ("default") and for all.
func (r *router) keepAdvertisements() error {
	interfaces, err := os.ReadDir(sysctlPath("net/ipv6/conf"))
	if err != nil {
		return absentFile(err)
	}
	for _, i := range interfaces {
		name := i.Name()
		if name == "all" || name == "default" || link.IsHostEndName(name) {
			continue
		}
		if err := r.keepAdvertisementsOf(name); err != nil {
			return err
		}
	}
	return nil
}

func (r *router) keepAdvertisementsOf(name string) error {
	accept, acceptErr := readSysctl(acceptRA(name))
	forwarding, forwardingErr := readSysctl("net/ipv6/conf/" + name + "/forwarding")
	if err := errors.Join(acceptErr, forwardingErr); err != nil || accept != "1" || forwarding != "0" {
		return err
	}
	if err := writeSysctl(acceptRA(name), "2"); err != nil {
		return absentFile(err) // the interface went meanwhile
	}
	r.log.Info("accept_ra set to 2, as the node becomes an IPv6 router", "ifname", name, "sysctl", acceptRA(name))
	return nil
}

// absentFile takes "no such file" for a success.
func absentFile(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (r *router) inNamespace(f func() error) error { return netns.In(int(r.namespace.Fd()), f) }

func acceptRA(ifname string) string { return "net/ipv6/conf/" + ifname + "/accept_ra" }

// readSysctl returns a value without its line end, or "" when there is no such sysctl: a kernel without IPv6 is fine.
func readSysctl(name string) (string, error) {
	value, err := os.ReadFile(sysctlPath(name))
	return strings.TrimSpace(string(value)), absentFile(err)
}

func writeSysctl(name, value string) error { return writeFile(unix.AT_FDCWD, sysctlPath(name), value) }

// writeFile writes to an existing file below a folder. Package os would make more system calls.
func writeFile(folder int, path, value string) error {
	fd, err := unix.Openat(folder, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// sysctlPath takes names with slashes, as sysctl(8) does: the names of interfaces have dots.
func sysctlPath(name string) string { return "/proc/sys/" + name }
