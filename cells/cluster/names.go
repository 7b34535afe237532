package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"strconv"
	"strings"
)

// maxName is the length of the longest name of a record: a DNS label's, as Kubernetes has it for labels.
const maxName = 63

const keyLength = 10

var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewKey returns the key of a new incarnation of a node: 50 random bits.
func NewKey() string {
	var raw [7]byte
	_, _ = rand.Read(raw[:]) // never fails (crypto/rand, Go 1.24)
	return keyEncoding.EncodeToString(raw[:])[:keyLength]
}

func isKey(text string) bool {
	return len(text) == keyLength && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// RecordName is the name of the record of a node: NAME.KEY, with a hash in place of a name that is too long or no DNS
// name.
func (id NodeID) RecordName() string { return id.recordName(maxName) }

func (id NodeID) recordName(longest int) string {
	name := id.Name
	if !isDNSName(name) || len(name)+1+keyLength > longest {
		sum := sha256.Sum256([]byte(id.Name))
		name = keyEncoding.EncodeToString(sum[:20])
	}
	return name + "." + id.Key
}

// isDNSName reports whether text is labels of a-z, 0-9 and inner hyphens with dots between them.
func isDNSName(text string) bool {
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	return true
}

// BlockName is the name of the record of a block: 10-0-4-0-26, fd00-0010-0000-0000-0000-0000-0000-0000-64.
func BlockName(cidr netip.Prefix) string {
	text := cidr.Addr().StringExpanded()
	return strings.NewReplacer(".", "-", ":", "-").Replace(text) + "-" + strconv.Itoa(cidr.Bits())
}

// ParseBlockName is the reverse of [BlockName]. For another name it returns the zero prefix.
func ParseBlockName(name string) (none netip.Prefix) {
	parts := strings.Split(name, "-")
	last := len(parts) - 1
	bits, err := strconv.Atoi(parts[last])
	separator := ":"
	if last == 4 {
		separator = "."
	}
	addr, err2 := netip.ParseAddr(strings.Join(parts[:last], separator))
	if err != nil || err2 != nil {
		return none
	}
	if cidr := netip.PrefixFrom(addr, bits); BlockName(cidr) == name {
		return cidr
	}
	return none
}

// ParseRecordName is the reverse of [NodeID.RecordName]. The Name of a node that is stored as a hash is the hash. For a
// name of another form it returns the zero ID.
func ParseRecordName(name string) NodeID {
	dot := strings.LastIndex(name, ".")
	if dot < 0 || !isDNSName(name[:dot]) || !isKey(name[dot+1:]) {
		return NodeID{}
	}
	return NodeID{Name: name[:dot], Key: name[dot+1:]}
}
