package spec

import (
	"fmt"

	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// readDNS checks the types and keeps the text; nil when it says nothing, as then another's is taken.
func readDNS(value []byte) ([]byte, error) {
	says := false
	err := jsontext.Fields(value, func(key string, value []byte) error {
		n, err := dnsField(key, value)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		says = says || n > 0
		return nil
	})
	if !says {
		return nil, err
	}
	return value, err
}

// dnsField tells how much a member says.
func dnsField(key string, value []byte) (int, error) {
	switch key {
	case "domain":
		domain, err := jsontext.String(value)
		return len(domain), err
	case "nameservers", "search", "options":
		list, err := jsontext.Strings(value)
		return len(list), err
	}
	return 0, nil
}
