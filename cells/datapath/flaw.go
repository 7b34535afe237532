package datapath

// flaw is one thing of an endpoint that is not as it should be.
type flaw struct {
	kind   string // of finding: see kinds.go
	what   string // "route to 10.0.0.2"
	detail string // what it is instead: "missing"
}

func (f flaw) String() string { return f.what + ": " + f.detail }

// missing is the detail of what is not there at all.
const missing = "missing"

func describeFlaws(flaws []flaw) (texts []string) {
	for _, f := range flaws {
		texts = append(texts, f.String())
	}
	return texts
}
