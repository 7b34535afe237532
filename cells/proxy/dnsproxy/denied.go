package dnsproxy

import "errors"

// Denied is how queries for names that no rule allows are answered: a pflag.Value.
type Denied uint8

const (
	// NXDomain has every resolver go on with its search list.
	NXDomain Denied = iota
	// Refused is the honest code. The resolver of musl asks again for 5 s, and then gives up the search.
	Refused
)

// String implements pflag.Value.
func (d *Denied) String() string { return [...]string{"nxdomain", "refused"}[*d] }

// Set implements pflag.Value.
func (d *Denied) Set(text string) error {
	for _, known := range []Denied{NXDomain, Refused} {
		if text == known.String() {
			*d = known
			return nil
		}
	}
	return errors.New("want nxdomain or refused")
}

// Type implements pflag.Value.
func (*Denied) Type() string { return "code" }

func (d Denied) code() int { return [...]int{codeName, codeRefused}[d] }
