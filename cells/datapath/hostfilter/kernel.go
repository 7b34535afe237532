package hostfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// errChanged is returned when somebody else has changed the ruleset meanwhile.
var errChanged = errors.New("the ruleset changes all the time")

// timeout is for all exchanges of one Apply: the kernel never answers some requests that it does not understand.
const timeout = 30 * time.Second

// A transaction is one message of all elements, and has an acknowledgement for each part.
const (
	sendBuffer    = 64 << 20
	receiveBuffer = 4 << 20
	partElements  = 400 // of a message's part, whose length is a 16-bit number
)

const nfgenmsgLen = 4 // struct nfgenmsg; all zero is every family

// kernel is the ruleset of a network namespace. Closing it takes as long as the kernel needs to free what was removed,
// 5 to 15 ms.
type kernel struct {
	conn   *nftables.Conn
	socket *netlink.Conn // of conn
}

func connect(namespace *os.File) (k *kernel, err error) {
	k = &kernel{}
	k.conn, err = nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(int(namespace.Fd())), nftables.WithSockOptions(
		func(socket *netlink.Conn) error {
			k.socket = socket
			return errors.Join(socket.SetWriteBuffer(sendBuffer), socket.SetReadBuffer(receiveBuffer))
		},
	))
	if err != nil {
		return nil, explain("open a netfilter socket", err)
	}
	return k, nil
}

func (k *kernel) close() error { return k.conn.CloseLasting() }

// explain says what was refused, and that the kernel lacks something when that is why.
func explain(doing string, err error) error {
	for _, errno := range []error{unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EINVAL, unix.ENOENT} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%s: %w: %w", doing, ErrUnsupported, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// generation is the number of the last transaction.
func (k *kernel) generation() (uint32, error) {
	const doing = "read the generation of the nftables ruleset"
	answers, err := k.socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, nfgenmsgLen),
	})
	if err != nil {
		return 0, explain(doing, err)
	}
	for _, answer := range answers {
		attributes, err := netlink.NewAttributeDecoder(answer.Data[min(nfgenmsgLen, len(answer.Data)):])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", doing, err)
		}
		attributes.ByteOrder = binary.BigEndian
		for attributes.Next() {
			if attributes.Type() == unix.NFTA_GEN_ID {
				return attributes.Uint32(), attributes.Err()
			}
		}
	}
	return 0, fmt.Errorf("%s: the answer does not have it", doing)
}

// read returns the table's elements; intact is false when its rules, chains and sets are not as they should be. It
// returns errChanged unless the ruleset is of that generation before and after.
func (k *kernel) read(generation uint32) (have state, intact bool, err error) {
	have, intact, err = k.readTable()
	after, afterErr := k.generation()
	switch {
	case afterErr != nil:
		return nil, false, afterErr
	case after != generation:
		return nil, false, errChanged
	case err != nil:
		return nil, false, fmt.Errorf("read the table of nftables: %w", err)
	}
	return have, intact, nil
}

func (k *kernel) readTable() (have state, intact bool, err error) {
	found, err := k.conn.ListTableOfFamily(table.Name, table.Family)
	if errors.Is(err, unix.ENOENT) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	have = state{}
	if found.Flags != 0 {
		return have, false, nil // dormant: no rule of it is in use
	}
	intact, err = k.isIntact()
	if err != nil || !intact {
		return have, false, err
	}
	for _, s := range sets {
		elements, err := k.conn.GetSetElements(s.nft())
		if err != nil {
			return nil, false, err
		}
		for _, encoded := range elements {
			link, e, ok := s.decode(encoded)
			if !ok {
				return have, false, nil
			}
			have[link] = append(have[link], e)
		}
	}
	for link := range have {
		have.add(link) // puts them in order
	}
	return have, true, nil
}

// isIntact compares what is the same for all pods.
func (k *kernel) isIntact() (bool, error) {
	found, err := k.conn.GetSets(table)
	if err != nil {
		return false, err
	}
	for _, s := range sets {
		if !slices.ContainsFunc(found, func(f *nftables.Set) bool { return f.Name == s.name }) {
			return false, nil
		}
	}
	foundChains, err := k.conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false, err
	}
	for _, c := range chains {
		if !slices.ContainsFunc(foundChains, c.isSame) {
			return false, nil
		}
		rules, err := k.conn.GetRules(table, c.nft)
		if err != nil {
			return false, err
		}
		same := func(found *nftables.Rule, r rule) bool { return slices.Equal(found.UserData, r.userData()) }
		if !slices.EqualFunc(rules, c.rules, same) {
			return false, nil
		}
	}
	return true, nil
}

func (c chain) isSame(found *nftables.Chain) bool {
	return found.Table.Name == table.Name && found.Name == c.nft.Name && found.Type == c.nft.Type &&
		isEqual(found.Hooknum, c.nft.Hooknum) && isEqual(found.Priority, c.nft.Priority) && isEqual(found.Policy, c.nft.Policy)
}

func isEqual[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// write makes what is there what it should be, in one transaction.
func (k *kernel) write(have, want state, intact bool) error {
	if have != nil && (want == nil || !intact) {
		k.conn.DelTable(table)
		have = nil
	}
	if have == nil && want != nil {
		k.addTable()
	}
	for _, s := range sets {
		if err := k.writeSet(s, have, want); err != nil {
			return err
		}
	}
	return k.conn.Flush()
}

func (k *kernel) addTable() {
	k.conn.AddTable(table)
	for _, s := range sets {
		_ = k.conn.AddSet(s.nft(), nil) // fails for anonymous sets alone
	}
	for _, c := range chains {
		k.conn.AddChain(c.nft)
	}
	for _, c := range chains {
		for _, r := range c.rules {
			k.conn.AddRule(&nftables.Rule{Table: table, Chain: c.nft, Exprs: r.exprs, UserData: r.userData()})
		}
	}
}

// writeSet removes what is not wanted before it adds what is: ranges must not overlap.
func (k *kernel) writeSet(s *set, have, want state) error {
	var remove, add []nftables.SetElement
	for link, elements := range have {
		remove = s.appendMissing(remove, link, elements, want[link])
	}
	for link, elements := range want {
		add = s.appendMissing(add, link, elements, have[link])
	}
	if want == nil {
		remove = nil // they went with the table
	}
	for part := range slices.Chunk(remove, partElements) {
		if err := k.conn.SetDeleteElements(s.nft(), part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(add, partElements) {
		if err := k.conn.SetAddElements(s.nft(), part); err != nil {
			return err
		}
	}
	return nil
}

// appendMissing appends those of the set that are not in the other list.
func (s *set) appendMissing(to []nftables.SetElement, link int, elements, other []element) []nftables.SetElement {
	if slices.Equal(elements, other) {
		return to
	}
	for _, e := range elements {
		if e.set == s && !slices.Contains(other, e) {
			to = append(to, e.encode(link))
		}
	}
	return to
}

func (k *kernel) counters() (c Counters, err error) {
	for name, to := range map[string]*uint64{denied: &c.Input, forward: &c.Forward} {
		rules, err := k.conn.GetRules(table, &nftables.Chain{Name: name})
		if err != nil {
			return c, explain("read the counters of nftables", err)
		}
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					*to = counter.Packets
				}
			}
		}
	}
	return c, nil
}
