package endpointmanager

import (
	"fmt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/netns"
)

// CheckOrigin returns [ErrOtherNamespace] when the ledger is of another network namespace of this boot. It changes
// nothing, so that a program can ask before it starts anything else. A ledger that it cannot read is no error:
// [Service].Start reports that.
func CheckOrigin(cfg Config) error {
	here, err := originHere()
	if err != nil {
		return err
	}
	origin, err := ledger.ReadOrigin(cfg.ledgerPath())
	if err != nil {
		return nil
	}
	return checkOrigin(origin, here, cfg.ledgerPath())
}

// ReadPods returns the pods of the ledger, as far as it can be read. It is for programs that run while the agent does
// not.
func ReadPods(cfg Config) map[endpoint.Attachment]endpoint.Pod {
	pods := map[endpoint.Attachment]endpoint.Pod{}
	records, _ := ledger.ReadAttachments(cfg.ledgerPath())
	for _, r := range records {
		pods[r.Endpoint.Spec.Attachment] = r.Endpoint.Spec.Pod
	}
	return pods
}

func checkOrigin(origin, here ledger.Origin, path string) error {
	if origin.Boot != here.Boot || origin.NetNS == here.NetNS {
		return nil
	}
	return fmt.Errorf("%w: %s is of namespace %d, and this one is %d: run the agent in the host's network (hostNetwork: true); "+
		"or, where the node is a container that was restarted, remove %s", ErrOtherNamespace, path, origin.NetNS, here.NetNS, path)
}

// originHere is the origin of this process.
func originHere() (here ledger.Origin, err error) {
	if here.Boot, err = boottime.ID(); err != nil {
		return here, err
	}
	here.NetNS, err = netns.OwnCookie()
	return here, err
}

// isFormer reports whether a ledger is of an earlier boot: the links and namespaces in its records are gone.
func isFormer(origin, here ledger.Origin) bool {
	return origin != ledger.Origin{} && origin.Boot != here.Boot
}
