package rtnl

import "errors"

// MAC is a 48-bit link address.
type MAC [6]byte

var errMAC = errors.New("want six bytes as in 02:00:5e:10:00:01")

// ParseMAC reads the colon separated form.
func ParseMAC(text string) (mac MAC, err error) {
	if len(text) != 17 {
		return MAC{}, wrapped{"MAC " + text, errMAC}
	}
	for i := range mac {
		high, low := hexDigit(text[3*i]), hexDigit(text[3*i+1])
		if high > 15 || low > 15 || i < 5 && text[3*i+2] != ':' {
			return MAC{}, wrapped{"MAC " + text, errMAC}
		}
		mac[i] = high<<4 | low
	}
	return mac, nil
}

// hexDigit is the value of a digit, or 16.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}

// String is the colon separated form.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	text := make([]byte, 0, 17)
	for i, b := range m {
		if i > 0 {
			text = append(text, ':')
		}
		text = append(text, digits[b>>4], digits[b&15])
	}
	return string(text)
}
