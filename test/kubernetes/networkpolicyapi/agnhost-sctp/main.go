// Command agnhost-sctp takes the place of agnhost in the pods of network-policy-api's tests, for SCTP. Where the kernel
// has no sockets of SCTP, raw sockets connect and serve: an INIT that gets its INIT ACK is a connection. For all else
// it runs agnhost, from the folder that conformance_test.go mounts.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	var err error
	switch args := strings.Join(os.Args[1:], " "); {
	case kernelHasSCTP():
		err = execOther()
	case strings.HasPrefix(args, "connect ") && strings.Contains(args, "--protocol=sctp"):
		err = connect(os.Args[2:])
	case args == "porter":
		err = serve()
	default:
		err = execOther()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func execOther() error { return syscall.Exec("/programs/agnhost", os.Args, os.Environ()) }

func kernelHasSCTP() bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, syscall.IPPROTO_SCTP)
	if err == nil {
		_ = syscall.Close(fd)
	}
	return err == nil
}

const (
	headerLen = 12 // ports, verification tag, checksum
	chunkLen  = 20 // INIT or INIT ACK without parameters
	chunkINIT = 1
	chunkACK  = 2
	tag       = 1 // of both ends
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func packet(source, destination uint16, verification uint32, chunk byte) []byte {
	p := make([]byte, headerLen+chunkLen)
	binary.BigEndian.PutUint16(p, source)
	binary.BigEndian.PutUint16(p[2:], destination)
	binary.BigEndian.PutUint32(p[4:], verification)
	p[headerLen], p[headerLen+3] = chunk, chunkLen
	init := p[headerLen+4:]
	binary.BigEndian.PutUint32(init, tag)
	binary.BigEndian.PutUint32(init[4:], 1<<16) // window
	binary.BigEndian.PutUint16(init[8:], 1)     // streams there
	binary.BigEndian.PutUint16(init[10:], 1)    // and back
	binary.BigEndian.PutUint32(init[12:], 1)    // first number
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, castagnoli))
	return p
}

// connect has agnhost's arguments and its message.
func connect(args []string) error {
	timeout, target := time.Duration(0), ""
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--timeout="); ok {
			timeout, _ = time.ParseDuration(value)
		} else if !strings.HasPrefix(arg, "-") {
			target = arg
		}
	}
	host, service, err := net.SplitHostPort(target)
	if err != nil {
		return err
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return err
	}
	conn, err := net.Dial("ip4:132", host)
	if err != nil {
		return err
	}
	own := uint16(32768 + rand.IntN(28232))
	if _, err := conn.Write(packet(own, uint16(port), 0, chunkINIT)); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	answer := packet(uint16(port), own, tag, chunkACK)
	for buf := make([]byte, 1500); ; {
		n, err := conn.Read(buf) // with the IP header
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errors.New("TIMEOUT")
		case err != nil:
			return err
		case bytes.HasSuffix(buf[:n], answer):
			return nil
		}
	}
}

// serve answers on the ports that agnhost's porter takes from its environment.
func serve() error {
	ports := make(map[uint16]bool)
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if service, ok := strings.CutPrefix(name, "SERVE_SCTP_PORT_"); ok {
			port, err := strconv.ParseUint(service, 10, 16)
			if err != nil {
				return err
			}
			ports[uint16(port)] = true
		}
	}
	conn, err := net.ListenPacket("ip4:132", "0.0.0.0")
	if err != nil {
		return err
	}
	for buf := make([]byte, 1500); ; {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if n < headerLen+chunkLen || buf[headerLen] != chunkINIT {
			continue
		}
		source, port := binary.BigEndian.Uint16(buf), binary.BigEndian.Uint16(buf[2:])
		if !ports[port] {
			continue
		}
		if _, err := conn.WriteTo(packet(port, source, binary.BigEndian.Uint32(buf[headerLen+4:]), chunkACK), from); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
