package cells_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "porin.dev/porin/"

// mayImport is the direction of the house: who may import what of the module, besides the standard and other
// libraries. A change of this table is a change of the design.
var mayImport = map[string][]string{
	"api/v1":                          {},
	"api/v1/client":                   {"api/v1"},
	"api/v1/openapi":                  {"api/v1"},
	"bpf":                             {"bpf/abi"},
	"bpf/abi":                         {},
	"cells/metrics":                   {"internal"},
	"cells/server":                    {"api/v1", "api/v1/openapi", "cells/metrics", "internal"},
	"cells/supervisor":                {"api/v1", "cells/metrics", "cells/server", "internal"},
	"cells/cluster":                   {"api/v1", "internal"},
	"cells/cluster/embedded":          {"api/v1", "cells/cluster", "cells/server", "cells/supervisor", "internal"},
	"cells/cluster/admin":             {"api/v1", "cells/cluster", "internal"},
	"cells/cluster/adminapi":          {"api/v1", "cells/cluster", "cells/cluster/admin", "internal"},
	"cells/health":                    {"api/v1", "cells/cluster", "cells/endpoint", "cells/endpointmanager", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/health/probe":              {"cells/cluster"},
	"cells/health/probe/network":      {"cells/health/probe"},
	"cells/ipam/allocator":            {"cells/endpoint", "internal"},
	"cells/ipam/multipool":            {"api/v1", "cells/capacity", "cells/cluster", "cells/cluster/admin", "cells/cluster/adminapi", "cells/doctor", "cells/ipam/allocator", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/kubernetes":                {"api/v1", "cells/cluster", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/ipam", "cells/kubernetes/records", "cells/kubernetes/watch", "cells/metrics", "cells/policy", "cells/policy/model", "cells/server", "cells/supervisor", "internal"},
	"cells/kubernetes/records":        {"cells/cluster", "cells/kubernetes/watch", "internal/watchable"},
	"cells/kubernetes/nodegc":         {"cells/cluster", "cells/cluster/admin", "cells/kubernetes/watch", "internal/task"},
	"cells/kubernetes/watch":          {},
	"cells/doctor":                    {"api/v1", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/capacity":                  {"api/v1", "cells/doctor", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/endpoint":                  {"api/v1", "internal/fault", "internal/labels", "internal/netns"},
	"cells/endpointmanager":           {"api/v1", "cells/capacity", "cells/doctor", "cells/endpoint", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/endpointmanager/admission": {"cells/endpoint", "internal"},
	"cells/endpointmanager/ledger":    {"cells/endpoint", "internal"},
	"cells/ipam":                      {"api/v1", "cells/capacity", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/ipam/delegate", "cells/link", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/ipam/delegate":             {"cells/endpoint", "internal"},
	"cells/bandwidth":                 {"api/v1", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/link", "cells/supervisor", "internal"},
	"cells/link":                      {"api/v1", "cells/endpoint", "internal"},
	"cells/hostport":                  {"api/v1", "cells/doctor", "cells/endpoint", "cells/metrics", "cells/supervisor", "internal"},
	"cells/cni":                       {"api/v1", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/ipam/delegate", "cells/link", "cells/server", "cells/supervisor", "internal"},
	"cells/datapath":                  {"api/v1", "bpf", "bpf/abi", "cells/capacity", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/link", "cells/metrics", "cells/monitor/flow", "cells/policy", "cells/server", "cells/supervisor", "internal"},
	"cells/monitor":                   {"api/v1", "cells/endpoint", "cells/endpointmanager", "cells/server", "internal"},
	"cells/monitor/flow":              {"api/v1", "bpf/abi", "cells/endpoint", "cells/endpointmanager", "cells/metrics", "cells/monitor/stream", "cells/policy", "cells/proxy/accesslog", "cells/server", "cells/supervisor", "internal"},
	"cells/monitor/stream":            {"internal"},
	"cells/policy":                    {"api/v1", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/metrics", "cells/server", "cells/supervisor", "internal"},
	"cells/policy/model":              {},
	"cells/policy/engine":             {"cells/policy/model"},
	"cells/policy/oracle":             {"cells/policy/model"},
	"cells/policy/manifest":           {"cells/policy/model"},
	"cells/policy/policymap":          {"bpf", "bpf/abi", "cells/policy/engine", "cells/policy/model", "internal/bpfarray"},
	"cells/policy/dnsname":            {"cells/policy/model"},
	"cells/policy/names":              {"cells/policy/dnsname", "internal/diskfile", "internal/fault"},
	"cells/proxy":                     {"api/v1", "bpf/abi", "cells/doctor", "cells/endpoint", "cells/metrics", "cells/policy", "cells/server", "cells/supervisor", "internal"},
	"cells/proxy/control":             {"api/v1", "cells/doctor", "cells/metrics", "cells/policy", "cells/proxy", "cells/server", "cells/supervisor", "internal"},
	"cells/proxy/mapkernel":           {"cells/datapath", "cells/policy", "cells/proxy"},
	"cells/proxy/quota":               {},
	"cells/proxy/accesslog":           {"cells/policy/model", "cells/proxy/quota"},
	"cells/proxy/dnsproxy":            {"cells/policy/dnsname", "cells/proxy/quota"},
	"cells/proxy/bufconn":             {},
	"cells/proxy/watchdog":            {},
	"cells/proxy/httpproxy":           {"cells/policy/model", "cells/proxy/bufconn", "cells/proxy/watchdog"},
	"cells/proxy/http2proxy":          {"cells/proxy/bufconn", "cells/proxy/httpproxy", "cells/proxy/watchdog"},
	"cells/proxy/redirect":            {"bpf", "bpf/abi", "cells/link", "internal"},
	"cmd/agent":                       {"api/v1/openapi", "cells", "internal"},
	"cmd/cni":                         {"api/v1", "internal"},
	"cmd/proxy":                       {"cells", "internal"},
	"cmd/porin":                       {"api/v1", "api/v1/client", "bpf/abi", "cells/cluster", "cells/cluster/admin", "cells/cluster/adminapi", "cells/datapath", "cells/kubernetes", "cells/kubernetes/nodegc", "deploy", "internal"},
	"cells/node/tunnel":               {"api/v1", "bpf", "bpf/abi", "cells/datapath/loader", "cells/link", "internal"},
	"cells/node":                      {"api/v1", "bpf/abi", "cells/cluster", "cells/doctor", "cells/link", "cells/metrics", "cells/node/cache", "cells/server", "cells/supervisor", "internal"},
	"cells/node/cache":                {"cells/cluster", "cells/supervisor", "internal"},
	"cells/node/endpoints":            {"cells/cluster", "cells/endpoint", "cells/endpointmanager", "cells/node", "cells/node/cache", "cells/policy", "cells/supervisor", "internal"},
	"cells/node/masquerade":           {"api/v1", "cells/doctor", "cells/endpoint", "cells/endpointmanager", "cells/link", "cells/node", "cells/server", "cells/supervisor", "internal"},
	"internal/fault":                  {},
	"internal/flock":                  {},
	"internal/boltfile":               {},
	"internal/bpfarray":               {},
	"internal/diskfile":               {},
	"internal/conntrack":              {"internal/netns"},
	"internal/labels":                 {},
	"internal/httpx":                  {"api/v1", "internal/fault"},
	"internal/netns":                  {},
	"internal/nft":                    {"internal/netns", "internal/nl", "internal/reconcile", "internal/task"},
	"internal/nl":                     {"internal/netns"},
	"internal/rtnl":                   {},
	"internal/deletionrecords":        {"internal/diskfile"},
	"internal/settings":               {},
	"cells/datapath/loader":           {"api/v1", "bpf", "bpf/abi", "internal/bpfarray", "internal/fault", "internal/flock"},
	"cells/datapath/hostfilter":       {"bpf/abi", "internal/fault", "internal/nft"},
}

// TestNoOptionalInputs: a module would do without an input that the composition has forgotten.
func TestNoOptionalInputs(t *testing.T) {
	for file := range importsOf(t, "..") {
		source, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(source), `optional:"`+`true"`) {
			t.Errorf("%s has an optional input: provide nil where the composition leaves it out", file)
		}
	}
}

// maxDependencies bounds the packages, including the standard library, that a package pulls into a program that embeds
// it alone.
var maxDependencies = map[string]int{"cells/cluster": 150, "cells/health/probe": 150}

func TestDependencies(t *testing.T) {
	for dir, most := range maxDependencies {
		out, err := exec.Command("go", "list", "-deps", module+dir).Output()
		if n := len(strings.Fields(string(out))); err != nil || n > most || n < 10 {
			t.Errorf("%s depends on %d packages, error %v; at most %d", dir, n, err, most)
		}
	}
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for file, imports := range importsOf(t, "..") {
		dir := path.Dir(file)
		allowed, ok := mayImport[dir]
		if !ok {
			if strings.HasPrefix(dir, "cells/") && !strings.HasSuffix(dir, "test") {
				t.Errorf("%s: the cell is not in the table of who may import whom", dir)
			}
			continue
		}
		seen[dir] = true
		for _, imported := range imports {
			if strings.HasPrefix(imported, dir+"/") {
				continue // its own inner packages
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return imported == a || strings.HasPrefix(imported, a+"/") }) {
				t.Errorf("%s imports %s: the table allows %v", file, imported, allowed)
			}
		}
	}
	for dir := range mayImport {
		if !seen[dir] {
			t.Errorf("%s is in the table and not in the tree", dir)
		}
	}
}

// importsOf returns what each file, tests left out, imports of the module, both without the module's path.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	own := map[string][]string{}
	for file, imports := range rawImportsOf(t, root) {
		own[file] = nil
		for _, imported := range imports {
			if rest, ok := strings.CutPrefix(imported, module); ok {
				own[file] = append(own[file], rest)
			}
		}
	}
	return own
}

func rawImportsOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		var imports []string
		for _, spec := range parsed.Imports {
			text, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, text)
		}
		files[filepath.ToSlash(relative)] = imports
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
