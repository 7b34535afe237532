package nft

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// Table describes a table of family inet that is Porin's own. It must not change after the first use.
type Table struct {
	Name   string
	Sets   []*Set
	Chains []Chain // a chain that others go to comes before them
	// Unsupported is what errors wrap when the kernel lacks something.
	Unsupported error
}

// Set is a set, or a map.
type Set struct {
	Name   string
	Key    nftables.SetDatatype
	Value  nftables.SetDatatype // of a map; the zero value is for a set
	Ranges bool
}

// Chain is a chain and its rules.
type Chain struct {
	Name  string
	Hook  *nftables.ChainHook // nil for a chain that others go to; then Type and Priority count for nothing
	Type  nftables.ChainType
	Order int32 // the priority: lower ones run before
	Rules []Rule
}

func (t *Table) nft() *nftables.Table {
	return &nftables.Table{Name: t.Name, Family: nftables.TableFamilyINet}
}

func (s *Set) isMap() bool { return s.Value != nftables.SetDatatype{} }

func (s *Set) isConcatenation() bool { return len(nftables.ConcatSetTypeElements(s.Key)) > 1 }

func (s *Set) nft(table *nftables.Table) *nftables.Set {
	set := &nftables.Set{
		Table: table, Name: s.Name, KeyType: s.Key, IsMap: s.isMap(), DataType: s.Value, Interval: s.Ranges, Concatenation: s.isConcatenation(),
		KeyByteOrder: binaryutil.BigEndian,
	}
	if s.Key == nftables.TypeIFIndex || s.isConcatenation() {
		set.KeyByteOrder = binaryutil.NativeEndian // of a concatenation nft list knows the order by itself
	}
	return set
}

func (c Chain) nft(table *nftables.Table) *nftables.Chain {
	chain := &nftables.Chain{Table: table, Name: c.Name}
	if c.Hook != nil {
		accept := nftables.ChainPolicyAccept
		chain.Type, chain.Hooknum, chain.Priority, chain.Policy = c.Type, c.Hook, nftables.ChainPriorityRef(nftables.ChainPriority(c.Order)), &accept
	}
	return chain
}

// ruleComment is NFTNL_UDATA_RULE_COMMENT of libnftnl: nft list shows the text.
const ruleComment userdata.Type = 0

// userData marks a rule as ours: its comment, with a digest of its expressions. A rule that another program has
// changed, or an older version has made, has another one.
func (r Rule) userData() []byte {
	digest := sha256.New()
	for _, e := range r.exprs {
		encoded, _ := expr.Marshal(byte(nftables.TableFamilyINet), e) // cannot fail for these
		digest.Write(encoded)
	}
	return userdata.AppendString(nil, ruleComment, r.comment+" #"+hex.EncodeToString(digest.Sum(nil)[:4]))
}
