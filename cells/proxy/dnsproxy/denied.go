package dnsproxy

import "errors"

// Denied is the reply to a query for a name that no rule allows. It is a pflag.Value.
type Denied uint8

const (
	// NXDomain makes every resolver continue with its search list.
	NXDomain Denied = iota
	// Refused says that the name was not looked up. The resolver of musl asks again for 5 s, and then ends the search.
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
