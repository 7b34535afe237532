package plugin_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// ipamPlugin is the folder of an IPAM plugin named fake, which is a shell script: testdata/ipam/fake says what it does.
type ipamPlugin struct{ dir string }

func newIPAMPlugin(t testing.TB, dir string) ipamPlugin {
	t.Helper()
	script, err1 := filepath.Abs("testdata/ipam/fake")
	p := ipamPlugin{filepath.Join(dir, "ipam")}
	for _, name := range []string{"on", "taken"} {
		err1 = errors.Join(err1, os.MkdirAll(p.file(name), 0o700))
	}
	// A link: nobody can start a file that somebody has open to write it.
	err2 := os.Symlink(script, p.file("fake"))
	err3 := p.gives(`{"ips":[{"address":"10.9.0.1/24","gateway":"10.9.0.254"},{"address":"fd09::1/64"}],"routes":[{"dst":"192.0.2.0/24"}],"dns":{"nameservers":["10.9.0.53"]}}`)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p ipamPlugin) file(name string) string { return filepath.Join(p.dir, name) }

// gives sets what ADD answers.
func (p ipamPlugin) gives(result string) error {
	return os.WriteFile(p.file("result"), []byte(result), 0o600)
}

// on has the plugin run shell text before a command.
func (p ipamPlugin) on(command, text string) error {
	if text == "" {
		return os.Remove(p.file("on/" + command))
	}
	return os.WriteFile(p.file("on/"+command), []byte(text), 0o600)
}

// take returns what is in a file, and removes it.
func (p ipamPlugin) take(name string) (string, error) {
	text, err := os.ReadFile(p.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), errors.Join(err, os.Remove(p.file(name)))
}

// taken lists the attachments that have addresses.
func (p ipamPlugin) taken() (string, error) {
	files, err := os.ReadDir(p.file("taken"))
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return strings.Join(names, "\n"), err
}

// manyRoutes is an answer with an address and n routes.
func manyRoutes(n int) string {
	routes := make([]string, n)
	for i := range routes {
		routes[i] = fmt.Sprintf(`{"dst":"10.50.%d.%d/32"}`, i/256, i%256)
	}
	return `{"ips":[{"address":"10.9.0.2/24"}],"routes":[` + strings.Join(routes, ",") + `]}`
}

func (w *story) ipamVerb(ts *testscript.TestScript, _ bool, args []string) {
	var text string
	var err error
	switch args[0] {
	case "on":
		err = w.ipam.on(args[1], args[2])
	case "gives":
		err = w.ipam.gives(args[1])
	case "many-routes":
		var n int
		n, err = strconv.Atoi(args[1])
		ts.Check(err)
		err = w.ipam.gives(manyRoutes(n))
	case "taken":
		text, err = w.ipam.taken()
	case "calls", "stdin":
		text, err = w.ipam.take(args[0])
	default:
		ts.Fatalf("ipam %s?", args[0])
	}
	ts.Check(err)
	_, _ = ts.Stdout().Write([]byte(w.anonymous(text)))
}
