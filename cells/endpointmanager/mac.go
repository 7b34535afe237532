package endpointmanager

import (
	"fmt"
	"net"

	"porin.dev/porin/internal/fault"
)

// MAC is a 48-bit link address. Unlike net.HardwareAddr it can be compared.
type MAC [6]byte

// ParseMAC reads the colon separated form.
func ParseMAC(text string) (MAC, error) {
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != 6 {
		return MAC{}, fault.New(fault.Invalid, fmt.Sprintf("MAC %q: want six bytes as in 02:00:5e:10:00:01", clip(text)))
	}
	return MAC(hw), nil
}

func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// MarshalText makes a MAC a string in JSON.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (m *MAC) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMAC(string(text))
	return err
}
