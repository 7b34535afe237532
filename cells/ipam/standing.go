package ipam

// standing answers whoever has something already, and whoever takes over what is reserved.
func (a *allocator) standing(req Request, t terms) (got Allocation, done bool, err error) {
	r := a.owners[req.Owner]
	switch {
	case r != nil && (t.token != "" || r.token != "" && r.token != req.Reservation):
		return got, true, r.has()
	case r != nil && r.token == "":
		return r.again(), true, r.satisfies(req)
	case req.Reservation != "":
		got, err = a.takeOver(req)
		return got, true, err
	}
	return got, false, nil
}

// satisfies tells whether what an owner has is what it asks for when it asks again.
func (r *record) satisfies(req Request) error {
	for f := range families {
		if want := f.of(req.Want); want.IsValid() && want != f.of(r.Addresses) {
			return r.has()
		}
	}
	return nil
}
