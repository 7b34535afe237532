package v1

import (
	"encoding/hex"
	"fmt"
)

// MAC is a 48-bit link address. In JSON it is colon separated.
type MAC [6]byte

// ParseMAC reads the colon separated form.
func ParseMAC(text string) (mac MAC, err error) {
	for i := range mac {
		if len(text) != 17 || i > 0 && text[3*i-1] != ':' {
			return MAC{}, errMAC(text)
		}
		if _, err := hex.Decode(mac[i:i+1], []byte(text[3*i:3*i+2])); err != nil {
			return MAC{}, errMAC(text)
		}
	}
	return mac, nil
}

func errMAC(text string) error {
	return fmt.Errorf("MAC %.64q: want six bytes as in 02:00:5e:10:00:01", text)
}

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MarshalText implements [encoding.TextMarshaler].
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}
