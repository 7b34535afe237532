package allocator

import "testing"

func TestOwnersReleasedWith(t *testing.T) {
	o := newOwners()
	pod := o.add(Allocation{Owner: "shop.web"}, [families]*address{})
	first := o.add(Allocation{Owner: "porin.c1.eth0", PodHandle: "shop.web"}, [families]*address{})
	second := o.add(Allocation{Owner: "porin.c2.eth0", PodHandle: "shop.web"}, [families]*address{})
	o.remove(first)
	if r := o.releasedWith(first); r != nil {
		t.Errorf("%s is released while another owner names it", r.Owner)
	}
	o.remove(second)
	if r := o.releasedWith(second); r != pod {
		t.Errorf("%v is released with the last owner, want the pod's", r)
	}
	o.remove(pod)
	o.insert(pod)
	if r := o.releasedWith(second); r != nil {
		t.Errorf("%s is released, and it is newer than the last owner", r.Owner)
	}
	if len(o.podHandles) > 0 {
		t.Errorf("counted without owners: %v", o.podHandles)
	}
}

func TestOwnersSeqAfterRestart(t *testing.T) {
	o := newOwners()
	first := o.add(Allocation{Owner: "porin.c1.eth0"}, [families]*address{}).Seq
	o.remove(o.records["porin.c1.eth0"])
	second := o.add(Allocation{Owner: "porin.c1.eth0"}, [families]*address{}).Seq
	next := newOwners()
	third := next.add(Allocation{Owner: "porin.c1.eth0"}, [families]*address{}).Seq
	if first >= second || second >= third {
		t.Errorf("sequence numbers %d, %d, and %d after a restart, want each greater than the one before", first, second, third)
	}
}
