package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// replicas is how many API servers the cluster has.
const replicas = 3

// api is a Kubernetes API with servers on machines of their own. All serve the same objects.
type api struct {
	*kubernetestest.Server
	fabric  *testutil.Fabric
	servers []*apiServer
	records cluster.Backend // with an administrator's rights, whatever becomes of the servers

	backup  *kubernetestest.Backup // nil before the first
	version uint64                 // of the backup
	taken   time.Time
	bump    uint64 // of the last restore that raised versions
}

// apiServer is one of them.
type apiServer struct {
	*kubernetestest.Frontend
	node   *testutil.Node
	handle *netlink.Handle // of its network
}

func startAPI(t *testing.T, fabric *testutil.Fabric) *api {
	t.Helper()
	server, records := recordstest.Start(t)
	a := &api{Server: server, fabric: fabric, records: records}
	for range replicas {
		node := fabric.NewNode(t)
		a.servers = append(a.servers, &apiServer{server.ServeIn(t, node.Do, node.IPv4.String()+":6443"), node, node.Netlink(t)})
	}
	for _, name := range []string{residents, guests} {
		a.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}})
	}
	if err := a.putPool(pool); err != nil {
		t.Fatal(err)
	}
	return a
}

// putPool creates or changes a pool, as an administrator does.
func (a *api) putPool(p cluster.Pool) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := admin.NewPools(a.records).Put(ctx, p)
	return err
}

// flags of an agent that tries one server after the other.
func (a *api) flags() []string {
	all := []string{"--store=kubernetes", "--kubeconfig=" + a.servers[0].Kubeconfig}
	for _, s := range a.servers {
		all = append(all, "--kubernetes-api-server="+s.URL())
	}
	return all
}

// putPod has the API know a pod, with its name as a label.
func (a *api) putPod(node *testutil.Node, namespace, name string) {
	a.Put(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}},
		Spec:       corev1.PodSpec{NodeName: node.Name},
	})
}

// How long the API is whole, and how long it is not.
const shortestPeace, longestPeace, shortestOutage, longestOutage = 500 * time.Millisecond, 3 * time.Second, 50 * time.Millisecond, 5 * time.Second

// outage is one kind. It ends before it returns, and at once when it is told to stop.
type outage func(w *world, random *rand.Rand, stop <-chan struct{}) error

// disturb goes through all kinds of outages, in an order by chance, and then restores the API from a backup
// of a while before, until it is told to end. All servers run at the end. One node claims blocks of a new pool from the
// backup until the restore, and another one, which reaches the restored API first, after it: a block that the records
// have forgotten must not be given to the second.
func (a *api) disturb(w *world, random *rand.Rand, stop <-chan struct{}) {
	outages := []outage{a.killOne, a.killAll, a.hang, a.hangAll, a.partition, a.partitionNode}
	for {
		backupBefore, order := random.IntN(len(outages)), random.Perm(len(w.hosts))
		before, after := w.hosts[order[0]], w.hosts[order[1]]
		pool := w.newPool(stop)
		for i, kind := range random.Perm(len(outages)) {
			if !sleep(between(random, shortestPeace, longestPeace), stop) {
				return
			}
			if i == backupBefore {
				a.save()
				w.favour(pool, before)
			}
			if err := outages[kind](w, random, stop); err != nil {
				w.wrongs.add("the API server does not come back", err.Error())
				return
			}
		}
		if !sleep(between(random, shortestPeace, longestPeace), stop) {
			return
		}
		w.favour(pool, after)
		alone := between(random, shortestPeace, longestPeace)
		if err := a.restore(w, after, []restoreWay{unannounced, unannounced, announced, announcedBumped}[random.IntN(4)], func() { sleep(alone, stop) }); err != nil {
			w.wrongs.add("the API is not restored", err.Error())
			return
		}
		w.endRecovery(stop)
	}
}

// killOne leaves the others.
func (a *api) killOne(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return a.kill(w, random, stop, a.servers[random.IntN(replicas)])
}

func (a *api) killAll(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return a.kill(w, random, stop, a.servers...)
}

func (a *api) kill(w *world, random *rand.Rand, stop <-chan struct{}, which ...*apiServer) error {
	a.stop(which...)
	w.counts.serversKilled.Add(int64(len(which)))
	sleep(between(random, shortestOutage, longestOutage), stop)
	return a.start(which...)
}

func (a *api) stop(which ...*apiServer) {
	for _, s := range which {
		s.Stop()
	}
}

func (a *api) start(which ...*apiServer) (err error) {
	for _, s := range which {
		err = errors.Join(err, s.Start())
	}
	return err
}

// hang has one answer nothing, with all its connections.
func (a *api) hang(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return a.hangSome(w, random, stop, a.servers[random.IntN(replicas)])
}

func (a *api) hangAll(w *world, random *rand.Rand, stop <-chan struct{}) error {
	return a.hangSome(w, random, stop, a.servers...)
}

func (a *api) hangSome(w *world, random *rand.Rand, stop <-chan struct{}, which ...*apiServer) error {
	w.counts.hangs.Add(1)
	for _, s := range which {
		s.Hang()
	}
	sleep(between(random, shortestOutage, longestOutage), stop)
	for _, s := range which {
		s.Resume()
	}
	return nil
}

// partition takes the link of one down.
func (a *api) partition(w *world, random *rand.Rand, stop <-chan struct{}) error {
	w.counts.partitions.Add(1)
	return a.cutOff(a.servers[random.IntN(replicas)].node, random, stop)
}

// partitionNode takes the link of the last node down, which no traffic goes by.
func (a *api) partitionNode(w *world, random *rand.Rand, stop <-chan struct{}) error {
	w.counts.nodesCut.Add(1)
	return a.cutOff(w.hosts[len(w.hosts)-1].node, random, stop)
}

func (a *api) cutOff(node *testutil.Node, random *rand.Rand, stop <-chan struct{}) error {
	err := a.fabric.Disconnect(node)
	sleep(between(random, shortestOutage, longestOutage), stop)
	return errors.Join(err, a.fabric.Connect(node))
}

// shun has no server answer these nodes, until it is undone.
func (a *api) shun(nodes []*testutil.Node) (undo func() error, err error) {
	each := func(do func(*netlink.Handle, *netlink.Route) error) (err error) {
		for _, s := range a.servers {
			for _, n := range nodes {
				route := testutil.HostRoute(0, n.IPv4, 0)
				route.Type, route.Scope = unix.RTN_BLACKHOLE, netlink.SCOPE_UNIVERSE
				if failure := do(s.handle, route); failure != nil {
					err = errors.Join(err, fmt.Errorf("%s: %w", s.node.Name, failure))
				}
			}
		}
		return err
	}
	return func() error { return each((*netlink.Handle).RouteDel) }, each((*netlink.Handle).RouteAdd)
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// sleep is false when it was ended.
func sleep(d time.Duration, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}
