package plugin_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agenttest"
	stories "porin.dev/porin/internal/story"
	"porin.dev/porin/internal/testutil"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestStories runs testdata/*.txtar. Each has a node with an agent, and these commands:
//
//	container NAME                   makes a container with that ID
//	cni COMMAND [NAME[:IFNAME]] ...  calls the plugin; CNI_X=value is a variable, key=JSON is in the configuration;
//	                                 prevResult=@ is the result of the container's last ADD
//	agent up|down|endpoints|calls    starts or stops the agent, lists its endpoints, or the calls since the last time
//	agent fault METHOD|PATH KIND [once] makes such calls fail, or the next one: refuse, stopping, break, drop, late, hang,
//	                                 noise, reject, cross; none ends it
//	agent families 4|6               gives endpoints addresses of these only
//	agent status starting|bare       says that it is not ready, or has no programs either
//	agent endpoint ATTACHMENT        shows whose it is
//	agent lacks NAME REASON          says that this resource is not available; agent ends NAME: that it is used up in 5 m
//	agent external                   shows what the last PUT said about addresses of another IPAM
//	agent pool                       shows the pool and the reservation that the last PUT asked for
//	agent later ATTACHMENT           makes it of an ADD that begins in an hour
//	agent forget ATTACHMENT          leaves its link without an endpoint
//	agent finds ATTACHMENT KIND WHAT what the doctor finds about it
//	agent gc                         shows the body of the last POST /v1/gc
//	agent withholds | fails          has the next POST /v1/gc delete nothing, or leave a part
//	sysctl NAME FILE                 shows a sysctl of the container
//	show node|NAME                   lists what is in the namespace, but for lo and what the kernel adds
//	edit NAME WHAT                   changes the container behind the plugin's back: down, no-addr, no-route, no-given-route,
//	                                 no-neigh, no-link, no-ipv6 (before ADD), gone (its namespace)
//	node-address PREFIX              gives the node's lo an address
//	alias NAME [TEXT]                shows what is written on the container's host end, or writes it
//	records                          works off the deletion records and lists them
//	ipam on COMMAND TEXT             has the IPAM plugin fake run this shell text before that command; none ends it
//	ipam gives JSON                  sets what it answers an ADD
//	ipam many-routes N               has it answer an ADD with an address and so many routes
//	ipam calls|stdin|taken           shows its calls since the last time, the last input, who has addresses
//	junk NAME IFNAME                 makes a pair of links with the names of the attachment
func TestStories(t *testing.T) {
	testutil.Root(t)
	type command = func(w *story, ts *testscript.TestScript, neg bool, args []string)
	cmds := stories.Verbs{}
	for name, run := range map[string]command{
		"container": (*story).container, "cni": (*story).cni, "agent": (*story).control, "show": (*story).show,
		"edit": (*story).edit, "sysctl": (*story).sysctl, "junk": (*story).junk, "alias": (*story).alias, "records": (*story).records,
		"ipam": (*story).ipamVerb, "node-address": (*story).nodeAddress,
	} {
		cmds[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			run(ts.Value("story").(*story), ts, neg, args)
		}
	}
	testscript.Run(t, testscript.Params{Dir: "testdata", Cmds: cmds.Checked(t), UpdateScripts: *update, Setup: func(env *testscript.Env) error {
		env.Values["story"] = &story{
			world: newWorld(env.T().(testing.TB)), containers: map[string]*testutil.Container{}, results: map[string]string{},
		}
		return nil
	}})
}

type story struct {
	*world
	containers map[string]*testutil.Container
	results    map[string]string // of the last ADD, by container
}

func (w *story) container(_ *testscript.TestScript, _ bool, args []string) {
	ctr := testutil.NewContainer(w.t)
	ctr.ID = args[0]
	w.containers[args[0]] = ctr
}

func (w *story) cni(ts *testscript.TestScript, neg bool, args []string) {
	command, args := args[0], args[1:]
	var ctr *testutil.Container
	if len(args) > 0 && !strings.Contains(args[0], "=") {
		name, ifname, _ := strings.Cut(args[0], ":")
		if found, ok := w.containers[name]; ok {
			attachment := *found
			if ifname != "" {
				attachment.IfName = ifname
			}
			ctr = &attachment
		} else {
			ts.Fatalf("no container %s", name)
		}
		args = args[1:]
	}
	config, env := map[string]any{}, []string{}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(key, "CNI_"):
			env = append(env, key, value)
		case value == "@":
			config[key] = json.RawMessage(w.results[ctr.ID])
		default:
			config[key] = json.RawMessage(value)
		}
	}
	got := w.call(command, ctr, config, env...)
	if command == "ADD" && got.code == 0 {
		w.results[ctr.ID] = got.stdout
	}
	fmt.Fprint(ts.Stdout(), w.anonymous(got.stdout))
	fmt.Fprint(ts.Stderr(), got.stderr)
	if (got.code != 0) != neg {
		ts.Fatalf("exit code %d: %s", got.code, got.stdout)
	}
}

// anonymous replaces what differs from run to run.
func (w *story) anonymous(text string) string {
	for name, ctr := range w.containers {
		text = strings.ReplaceAll(text, ctr.Path(), "/netns/"+name)
	}
	return strings.ReplaceAll(text, w.dir, "/run/porin")
}

func (w *story) control(ts *testscript.TestScript, _ bool, args []string) {
	switch args[0] {
	case "up":
		w.agent.Start(w.t)
	case "down":
		w.agent.Stop()
	case "endpoints":
		fmt.Fprintln(ts.Stdout(), strings.Join(w.agent.Endpoints(), "\n"))
	case "calls":
		fmt.Fprintln(ts.Stdout(), strings.Join(w.agent.TakeRequests(), "\n"))
	case "families":
		w.agent.Behave(func(b *agenttest.Behaviour) { b.Families = map[string][]int{"4": {4}, "6": {6}}[args[1]] })
	case "status":
		w.agent.Behave(func(b *agenttest.Behaviour) {
			b.Status.Ready = false
			if args[1] == "bare" {
				b.Status.Datapath.Programs = nil
			}
		})
	case "lacks":
		w.resource(v1.Resource{Name: args[1], Reason: args[2]})
	case "ends":
		w.resource(v1.Resource{Name: args[1], Available: true, ExhaustedIn: 5 * time.Minute})
	case "external":
		put := w.agent.LastPut()
		fmt.Fprintln(ts.Stdout(), strings.TrimSpace(fmt.Sprintf("externalIPAM %v, addresses %v %v", put.ExternalIPAM, put.Addresses.IPv4, put.Addresses.IPv6)))
	case "pool":
		put := w.agent.LastPut()
		fmt.Fprintf(ts.Stdout(), "pool %q, reservation %q\n", put.Pool, put.Reservation)
	case "later":
		w.agent.BornLater(args[1])
	case "forget":
		w.agent.Forget(args[1])
	case "finds":
		w.agent.Behave(func(b *agenttest.Behaviour) {
			b.Findings = map[string][]v1.Finding{args[1]: {{Kind: args[2], Subject: "it", Detail: args[3]}}}
		})
	case "gc":
		last := w.agent.LastGC()
		fmt.Fprintf(ts.Stdout(), "network %s valid %v dry %v, says when it began: %v\n", last.Network, last.Valid, last.DryRun, last.Began > 0)
	case "withholds":
		w.agent.Behave(func(b *agenttest.Behaviour) { b.Withhold = 1 })
	case "fails":
		w.agent.Behave(func(b *agenttest.Behaviour) { b.Failing = true })
	case "endpoint":
		w.agent.Change(args[1], func(ep *v1.Endpoint) {
			fmt.Fprintf(ts.Stdout(), "pod %s/%s %s %s\n", ep.Pod.Namespace, ep.Pod.Name, ep.Pod.UID, ep.Pod.PriorityClass)
		})
	case "fault":
		w.fault(ts, args[1], args[2], len(args) > 3)
	default:
		ts.Fatalf("agent %s?", args[0])
	}
}

func (w *story) resource(r v1.Resource) {
	w.agent.Behave(func(b *agenttest.Behaviour) { b.Status.Resources = append(b.Status.Resources, r) })
}

func (w *story) fault(ts *testscript.TestScript, method, name string, once bool) {
	kind, ok := map[string]agenttest.Fault{
		"refuse": agenttest.Refuse, "stopping": agenttest.Stopping, "break": agenttest.Break, "drop": agenttest.Drop,
		"late": agenttest.Late, "hang": agenttest.Hang, "noise": agenttest.Noise, "none": agenttest.None,
		"reject": agenttest.Reject, "cross": agenttest.Cross,
	}[name]
	if !ok {
		ts.Fatalf("no fault %s", name)
	}
	ended := false
	w.agent.Behave(func(b *agenttest.Behaviour) {
		b.Fault = func(r *http.Request) agenttest.Fault {
			if r.Method != method && r.URL.Path != method || ended {
				return agenttest.None
			}
			ended = once
			return kind
		}
	})
}
