package ipam

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func TestOneAtATime(t *testing.T) {
	first := takeTurn(t.Name(), time.Now())
	if first < 0 {
		t.Fatal("no turn though nobody is at it")
	}
	if other := takeTurn(t.Name()+"2", time.Now()); other < 0 {
		t.Error("another attachment waits")
	} else {
		other.end()
	}
	began := time.Now()
	if second := takeTurn(t.Name(), began.Add(50*time.Millisecond)); second >= 0 || time.Since(began) < 50*time.Millisecond {
		t.Errorf("the second has turn %d after %s", second, time.Since(began))
	}
	got := make(chan turn)
	go func() { got <- takeTurn(t.Name(), began.Add(10*time.Second)) }()
	first.end()
	if third := <-got; third < 0 {
		t.Error("the third has none though the first is over")
	} else {
		third.end()
	}
	takeTurn("", time.Now()).end() // a call about no attachment
}

// TestAPluginThatIsLeftBehindIsWaitedFor is an ADD whose caller was killed, and the DEL after it, in what they see of each
// other: a file that the ADD makes late must be there when the DEL begins.
func TestAPluginThatIsLeftBehindIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	given := filepath.Join(dir, "given")
	script := "#!/bin/sh\ncase $CNI_COMMAND in\nADD) (sleep 0.2; echo >" + given + ") >&- & ;;\nDEL) rm " + given + " ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "slow"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p, fault := Find("slow", dir)
	if fault != nil {
		t.Fatal(fault)
	}
	p.Env, p.Stderr, p.Broken, p.Turn = []string{"PATH=" + os.Getenv("PATH")}, 2, spec.TryAgain, t.Name()
	for _, command := range []string{"ADD", "DEL"} {
		if err := p.Call(command, time.Now().Add(20*time.Second)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(given); err == nil {
		t.Error("what was given late is given for ever")
	}
}

// TestNobodyIsWaitedForForEver: a plugin may leave something in the background for good.
func TestNobodyIsWaitedForForEver(t *testing.T) {
	p, fault := Find("true", "/usr/bin:/bin")
	if fault != nil {
		t.Fatal(fault)
	}
	p.Stderr, p.Turn = 2, t.Name()
	left := takeTurn(p.Turn, time.Now())
	defer left.end()
	if err := p.Call("DEL", time.Now().Add(200*time.Millisecond)); err != nil {
		t.Error(err)
	}
}
