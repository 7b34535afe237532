package hostport

import "porin.dev/porin/cells/doctor"

// CheckSCTP looks in a folder of sysctls.
var CheckSCTP = checkSCTPIn

// NewChecker is the cell's.
func NewChecker(s *Step) doctor.Checker { return newChecker(s) }
