package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil/story"
)

// TestMain makes the test binary the program itself when it is called by its name, as the shells do.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "porin" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestStories runs the scripts of testdata: an operator at the command line, and a fake agent.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		Setup:              setupStory,
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds: story.Verbs{
			"porin": porin, "code": code, "agent": agent, "cluster": changeCluster,
		}.Checked(t),
	})
}

// world is one script's machine.
type world struct {
	agent   *fakeAgent
	cluster *fakeCluster
	code    int // of the last porin
}

type worldKey struct{}

func setupStory(env *testscript.Env) error {
	w := new(world)
	env.Values[worldKey{}] = w
	env.Setenv(socketVariable, filepath.Join(env.WorkDir, "agent.sock"))
	env.Defer(func() {
		if w.agent != nil {
			w.agent.close()
		}
		if w.cluster != nil {
			w.cluster.close()
		}
	})
	return nil
}

// porin runs the program in this process.
func porin(ts *testscript.TestScript, neg bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	out, errs := ts.Stdout(), ts.Stderr()
	w.code = run(context.Background(), args, environment{
		in: &stdin{ts: ts}, out: out, err: errs, getenv: ts.Getenv, now: func() time.Time { return noon },
		inspect: inspect, dial: w.cluster.dial,
	})
	if (w.code != 0) != neg {
		ts.Fatalf("exit code %d", w.code)
	}
}

// stdin is the script's file of that name.
type stdin struct {
	ts *testscript.TestScript
	io.Reader
}

func (s *stdin) Read(p []byte) (int, error) {
	if s.Reader == nil {
		s.Reader = strings.NewReader(s.ts.ReadFile("stdin"))
	}
	return s.Reader.Read(p)
}

// code N holds that the last porin ended with that code.
func code(ts *testscript.TestScript, _ bool, args []string) {
	if w := ts.Value(worldKey{}).(*world); strconv.Itoa(w.code) != args[0] {
		ts.Fatalf("exit code %d, want %s", w.code, args[0])
	}
}

// agent start | stop | add | not-ready | stuck | failing | sick | blind | outside | without-pools |
// recovery-requested | recovering | clashing | unwritable | writable | in-audit |
// without-policies | without-proxy
func agent(ts *testscript.TestScript, _ bool, args []string) {
	w := ts.Value(worldKey{}).(*world)
	switch args[0] {
	case "start":
		var err error
		w.agent, err = startFakeAgent(ts.Getenv(socketVariable))
		ts.Check(err)
	case "stop":
		w.agent.close()
		w.agent = nil
	default:
		ts.Check(w.agent.change(args[0]))
	}
}

func (a *fakeAgent) change(verb string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch verb {
	case "add":
		a.add()
	case "not-ready":
		a.ready = false
	case "holding":
		a.held = []v1.HeldEndpoint{
			{Endpoint: strings.Repeat("5", 64) + ":eth0", Link: "por5", Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.1.0.5")}, Reason: "link-lost", Detail: "the ledger has it, and its link is gone"},
			{Endpoint: "por6", Link: "por6", Reason: "not-on-record", Detail: "link por6 is there, and the ledger has no record of it"},
		}
		a.endpoints = append(a.endpoints,
			v1.Endpoint{ID: 48, State: "held", Host: v1.Interface{Index: 48}, Addresses: v1.Addresses{IPv4: netip.MustParseAddr("10.1.0.48")}},
			v1.Endpoint{ID: 49, State: "held", Host: v1.Interface{Name: "por6", Index: 12, MAC: v1.MAC{2, 0, 0, 0, 1, 49}}})
	case "stuck":
		a.stuck = true
	case "failing":
		a.failing = true
	case "sick":
		a.sick = true
	case "blind":
		a.blind = true
	case "outside":
		a.outside = true
	case "unwritable", "writable":
		a.policies.failing = verb == "unwritable"
	case "in-audit":
		a.policies.audit = true
	case "without-policies":
		a.policies.all = nil
	case "without-proxy":
		a.proxy = v1.ProxyStatus{External: true, Error: "porin-proxy is not connected\nEOF"}
	case "delegated":
		a.delegated = true
	case "without-pools":
		a.pools = nil
	case "recovery-requested":
		a.recovery = &v1.RecoveryStatus{Requested: true}
	case "recovering":
		a.recovery = &v1.RecoveryStatus{UnderWay: true, Began: noon.Add(-time.Hour)}
	case "clashing":
		a.clash()
	default:
		return fmt.Errorf("agent: unknown verb %q", verb)
	}
	return nil
}

// inspect is a kernel with one endpoint, and a folder that one may not read.
func inspect(bpfRoot string) (datapath.Inspection, error) {
	switch filepath.Base(bpfRoot) {
	case "secret":
		return datapath.Inspection{}, &fs.PathError{Op: "open", Path: bpfRoot, Err: fs.ErrPermission}
	case "empty":
		return datapath.Inspection{}, nil
	}
	return datapath.Inspection{
		Programs:    []loader.PinnedProgram{{Name: "from_pod", Digest: "5e8fa7c0b1d2e3f4", ID: 41, Tag: "a1b2c3d4e5f60718", Loaded: noon.Add(-time.Minute)}},
		Maps:        []loader.PinnedMap{{Name: "endpoints", ID: 7, Type: "Hash", Entries: 2, MaxEntries: 4096}},
		Attachments: []datapath.ProgramAtALink{{IfName: "por000000000001", IfIndex: 11, Direction: "ingress", Name: "from_pod", ProgramID: 41}},
	}, nil
}
