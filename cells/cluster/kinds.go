package cluster

// Kind is what a backend needs to know of a kind of records.
type Kind[T any] struct {
	RecordName func(T) string
	Version    func(*T) *Version
	Deleting   func(*T) *bool
	Named      func(name string) T // an unreadable record, as far as its name says
	Check      func(T) error       // of a record that was read
}

// The kinds of records.
var (
	NodeKind = Kind[Node]{
		func(n Node) string { return n.ID.RecordName() }, func(n *Node) *Version { return &n.Version },
		func(n *Node) *bool { return &n.Deleting },
		func(name string) Node { return Node{ID: ParseRecordName(name)} }, Node.Validate,
	}
	SessionKind = Kind[Session]{
		func(s Session) string { return s.Node.RecordName() }, func(s *Session) *Version { return &s.Version },
		func(s *Session) *bool { return &s.Deleting },
		func(name string) Session { return Session{Node: ParseRecordName(name)} }, Session.Validate,
	}
	PoolKind = Kind[Pool]{
		func(p Pool) string { return p.Name }, func(p *Pool) *Version { return &p.Version },
		func(p *Pool) *bool { return &p.Deleting },
		func(name string) Pool { return Pool{Name: name} }, Pool.ValidateStored,
	}
	BlockKind = Kind[Block]{
		func(b Block) string { return BlockName(b.CIDR) }, func(*Block) *Version { return new(Version) },
		func(b *Block) *bool { return &b.Deleting },
		func(name string) Block { return Block{CIDR: ParseBlockName(name)} }, Block.Validate,
	}
	NetworkKind = Kind[NodeNetwork]{
		func(n NodeNetwork) string { return n.Node.RecordName() }, func(n *NodeNetwork) *Version { return &n.Version },
		func(n *NodeNetwork) *bool { return &n.Deleting },
		func(name string) NodeNetwork { return NodeNetwork{Node: ParseRecordName(name)} }, NodeNetwork.Validate,
	}
	EndpointGroupKind = Kind[EndpointGroup]{
		EndpointGroup.RecordName, func(g *EndpointGroup) *Version { return &g.Version },
		func(g *EndpointGroup) *bool { return &g.Deleting },
		ParseGroupName, EndpointGroup.Validate,
	}
)

// InfoKind returns the kind of the one record of the cluster, which has that name.
func InfoKind(name string) Kind[ClusterInfo] {
	return Kind[ClusterInfo]{
		func(ClusterInfo) string { return name }, func(i *ClusterInfo) *Version { return &i.Version },
		func(*ClusterInfo) *bool { return new(bool) },
		func(string) ClusterInfo { return ClusterInfo{} }, func(ClusterInfo) error { return nil },
	}
}
