package datapath_test
import "porin.dev/porin/cells/endpoint"
func (n *node) noCfg() endpoint.DeleteConfig { return endpoint.DeleteConfig{} }
