package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cmd/cni/internal/agenttest"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

// newDelegatedAdd is an ADD that has not begun, whose addresses are those of another IPAM plugin; taken tells whether the
// attachment has them.
func newDelegatedAdd(t *testing.T) (node *testutil.Namespace, agent *agenttest.Fake, a *adding, taken func() bool) {
	t.Helper()
	node, ctr, agent, a := newAdd(t)
	script, err := filepath.Abs("testdata/ipam/fake")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(script, filepath.Join(dir, "fake")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "result"), []byte(`{"ips":[{"address":"10.9.0.1/24"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a.Config.IPAM, a.Path = "fake", dir
	a.io.Environ = func() []string {
		return []string{"PATH=" + os.Getenv("PATH"), "CNI_CONTAINERID=" + ctr.ID, "CNI_IFNAME=" + ctr.IfName}
	}
	return node, agent, a, func() bool {
		_, err := os.Stat(filepath.Join(dir, "taken", ctr.ID+":"+ctr.IfName))
		return err == nil
	}
}

func TestAFailureAfterAnyStepGivesTheAddressesBack(t *testing.T) {
	for failing := range len((&adding{}).steps()) + 1 {
		node, agent, a, taken := newDelegatedAdd(t)
		steps := append([]step{}, a.steps()[:failing]...)
		had := false
		err := node.Do(func() error {
			return runSteps(append(steps, step{"broken", func() error { had = taken(); return os.ErrInvalid }, nil}))
		})
		links, linksErr := node.Conn(t).Links()
		if err != os.ErrInvalid || taken() || len(agent.Endpoints()) > 0 || len(links) != 1 || linksErr != nil {
			t.Errorf("after %d steps: %v, taken %v, endpoints %v, links %v", failing, err, taken(), agent.Endpoints(), links)
		}
		if given := failing > 4; had != given {
			t.Errorf("after %d steps the addresses are taken: %v", failing, had)
		}
	}
}

// TestALateADDSparesAnotherThatIsAtIt has two processes at the point where the IPAM plugin was called, and the agent was not.
func TestALateADDSparesAnotherThatIsAtIt(t *testing.T) {
	node, _, late, taken := newDelegatedAdd(t)
	again := *late.task
	again.began.boot += time.Second
	later, err := newAdding(&again)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(later.close)
	err = node.Do(func() error {
		err := errors.Join(runSteps(late.steps()[:4]), runSteps(later.steps()[:5]))
		late.giveBack()
		return err
	})
	links, linksErr := node.Conn(t).Links()
	if err != nil || !taken() || len(links) != 2 || linksErr != nil {
		t.Errorf("%v, taken %v, links %v, %v", err, taken(), links, linksErr)
	}
}

// TestAnAgentThatRestartsMeanwhile answers the ADD when the IPAM plugin is done.
func TestAnAgentThatRestartsMeanwhile(t *testing.T) {
	node, agent, a, taken := newDelegatedAdd(t)
	err := node.Do(func() error {
		steps := a.steps()
		restart := step{"restart", func() error { agent.Stop(); agent.Start(t); return nil }, nil}
		return runSteps(slices.Insert(steps, 5, restart))
	})
	if err != nil || !taken() || len(agent.Endpoints()) != 1 {
		t.Errorf("%v, taken %v, endpoints %v", err, taken(), agent.Endpoints())
	}
}

// TestALateADDSparesTheAddressesOfALaterLife is a process that was stopped in the middle, as the IPAM plugin knows nothing
// of lives.
func TestALateADDSparesTheAddressesOfALaterLife(t *testing.T) {
	for name, away := range map[string]bool{"as the agent says": false, "as the link says": true} {
		node, agent, late, taken := newDelegatedAdd(t)
		later := *late.task
		later.began.boot += time.Second
		err := node.Do(func() error {
			if err := runSteps(late.steps()[:4]); err != nil { // up to its link
				return err
			}
			if _, err := later.add(); err != nil {
				return err
			}
			var err error
			if away {
				agent.Stop()
			} else {
				err = late.node.Do(rtnl.SetAlias(late.hostName, ""))
			}
			late.giveBack()
			return err
		})
		links, linksErr := node.Conn(t).Links()
		if err != nil || !taken() || len(agent.Endpoints()) != 1 || len(links) != 2 || linksErr != nil {
			t.Errorf("%s: %v, taken %v, endpoints %v, links %v", name, err, taken(), agent.Endpoints(), links)
		}
	}
}
