package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/netns"
)

// A transaction is one message of all elements, and has an acknowledgement for each part.
const (
	sendBuffer    = 64 << 20
	receiveBuffer = 4 << 20
	partElements  = 400 // of a message's part, whose length is a 16-bit number
)

const nfgenmsgLen = 4 // struct nfgenmsg; all zero is every family

// conn is the ruleset of a network namespace. Closing it takes as long as the kernel needs to free what was removed, 5
// to 15 ms.
type conn struct {
	*nftables.Conn
	socket *netlink.Conn
	table  *Table
}

// connect opens the socket by [netns.In]: with a namespace of its own, mdlayher/socket drops the error of a socket that
// cannot be opened, and its callers use nil (withNetNS of v0.5.1, to be reported at github.com/mdlayher/socket).
func (t *Table) connect(namespace *os.File) (_ *conn, err error) {
	c := &conn{table: t}
	err = netns.In(int(namespace.Fd()), func() (err error) {
		c.Conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(socket *netlink.Conn) error {
			c.socket = socket
			return errors.Join(socket.SetWriteBuffer(sendBuffer), socket.SetReadBuffer(receiveBuffer))
		}))
		return err
	})
	if err != nil {
		if c.socket != nil {
			_ = c.socket.Close()
		}
		return nil, t.Explain("open a netfilter socket", err)
	}
	return c, nil
}

// Explain says what was refused, and that the kernel lacks something when that is why.
func (t *Table) Explain(doing string, err error) error {
	for _, errno := range []error{unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EINVAL, unix.ENOENT} {
		if errors.Is(err, errno) {
			return fmt.Errorf("%s: %w: %w", doing, t.Unsupported, err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// generation is the number of the last transaction.
func (c *conn) generation() (uint32, error) {
	const doing = "read the generation of the nftables ruleset"
	answers, err := c.socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, nfgenmsgLen),
	})
	if err != nil {
		return 0, c.table.Explain(doing, err)
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

// read returns the table's elements; damage says what of its rules, chains and sets is not as it should be, and then
// elements are missing. It returns errChanged unless the ruleset is of that generation before and after.
func (c *conn) read(generation uint32) (have State, damage string, err error) {
	have, damage, err = c.readTable()
	after, afterErr := c.generation()
	switch {
	case afterErr != nil:
		return nil, "", afterErr
	case after != generation:
		return nil, "", errChanged
	case err != nil:
		return nil, "", fmt.Errorf("read the table of nftables: %w", err)
	}
	return have, damage, nil
}

func (c *conn) readTable() (have State, damage string, err error) {
	found, err := c.ListTableOfFamily(c.table.Name, nftables.TableFamilyINet)
	if errors.Is(err, unix.ENOENT) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	have = State{}
	if found.Flags != 0 {
		return have, "the table is dormant", nil // no rule of it is in use
	}
	damage, err = c.damage()
	if err != nil || damage != "" {
		return have, damage, err
	}
	for _, s := range c.table.Sets {
		list, err := c.GetSetElements(s.nft(c.table.nft()))
		if err != nil {
			return nil, "", err
		}
		elements, ok := s.decode(list)
		if !ok {
			return have, "set " + s.Name + " has malformed elements", nil
		}
		have[s] = elements
	}
	return have, "", nil
}

// damage compares what never changes.
func (c *conn) damage() (string, error) {
	found, err := c.GetSets(c.table.nft())
	if err != nil {
		return "", err
	}
	for _, s := range c.table.Sets {
		if !slices.ContainsFunc(found, s.isSame) {
			return "set " + s.Name + " is missing or another one", nil
		}
	}
	foundChains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return "", err
	}
	for _, chain := range c.table.Chains {
		want := chain.nft(c.table.nft())
		if !slices.ContainsFunc(foundChains, func(found *nftables.Chain) bool { return isSameChain(found, want) }) {
			return "chain " + chain.Name + " is missing or another one", nil
		}
		rules, err := c.GetRules(want.Table, want)
		if err != nil {
			return "", err
		}
		same := func(found *nftables.Rule, r Rule) bool { return slices.Equal(found.UserData, r.userData()) }
		if !slices.EqualFunc(rules, chain.Rules, same) {
			return "chain " + chain.Name + " has other rules", nil
		}
	}
	return "", nil
}

func (s *Set) isSame(found *nftables.Set) bool {
	return found.Name == s.Name && found.IsMap == s.isMap() && found.Interval == s.Ranges &&
		(s.Value == nftables.TypeVerdict || found.KeyType.Bytes == s.Key.Bytes) // which the library has of no map of verdicts
}

func isSameChain(found, want *nftables.Chain) bool {
	return found.Table.Name == want.Table.Name && found.Name == want.Name && found.Type == want.Type &&
		isEqual(found.Hooknum, want.Hooknum) && isEqual(found.Priority, want.Priority) && isEqual(found.Policy, want.Policy)
}

func isEqual[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// write makes what is there what it should be, in one transaction.
func (c *conn) write(have, want State, isDamaged bool) error {
	table := c.table.nft()
	if have != nil && (want == nil || isDamaged) {
		c.DelTable(table)
		have = nil
	}
	if have == nil && want != nil {
		c.addTable(table)
	}
	if want != nil {
		for _, s := range c.table.Sets {
			if err := c.writeSet(s.nft(table), s, have[s], want[s]); err != nil {
				return err
			}
		}
	}
	return c.Flush()
}

func (c *conn) addTable(table *nftables.Table) {
	c.AddTable(table)
	for _, s := range c.table.Sets {
		_ = c.AddSet(s.nft(table), nil) // fails for anonymous sets alone
	}
	for _, chain := range c.table.Chains {
		c.AddChain(chain.nft(table))
	}
	for _, chain := range c.table.Chains {
		for _, r := range chain.Rules {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain.nft(table), Exprs: r.exprs, UserData: r.userData()})
		}
	}
}

// writeSet removes what is not wanted before it adds what is: ranges must not overlap.
func (c *conn) writeSet(set *nftables.Set, s *Set, have, want Elements) error {
	var remove, add []nftables.SetElement
	for _, e := range have.without(want) {
		remove = s.encode(remove, e)
	}
	for _, e := range want.without(have) {
		add = s.encode(add, e)
	}
	for part := range slices.Chunk(remove, partElements) {
		if err := c.SetDeleteElements(set, part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(add, partElements) {
		if err := c.SetAddElements(set, part); err != nil {
			return err
		}
	}
	return nil
}

// packets is the sum of the counters in a chain's rules.
func (c *conn) packets(chain string) (n uint64, err error) {
	rules, err := c.GetRules(c.table.nft(), &nftables.Chain{Name: chain})
	if err != nil {
		return 0, c.table.Explain("read the counters of nftables", err)
	}
	for _, r := range rules {
		for _, e := range r.Exprs {
			if counter, ok := e.(*expr.Counter); ok {
				n += counter.Packets
			}
		}
	}
	return n, nil
}
