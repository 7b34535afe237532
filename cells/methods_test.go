package cells_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A type with more methods than maxMethods has them in at most maxFiles files: several states want several types.
const maxMethods, maxFiles = 15, 2

// spread are the types that have them in more files, and in how many. It may only become shorter.
var spread = map[string]int{
	"api/v1/client.Client":           7,  // a file for each part of the API
	"cmd/porin.session":              13, // a file for each command
	"cells/datapath.Datapath":        5,
	"cells/ipam/allocator.Allocator": 5,
	"cells/monitor/flow.Collector":   3,
	"cells/node/tunnel.Tunnel":       3,
	"cells/policy.Policies":          5,
	"cells/policy.Queue":             3,
	"cells/policy/manifest.faults":   10,
	"cells/policy/names.Names":       4,
	"cells/proxy/control.Server":     4,
	"cells/proxy/http2proxy.Session": 8,
	"cells/proxy/httpproxy.Session":  5,
	"cells/proxy/redirect.Redirect":  8,
	"cmd/agent/cleanup.cleaner":      3,
}

func TestMethodsInFewFiles(t *testing.T) {
	methods, files := map[string]int{}, map[string][]string{}
	for path := range importsOf(t, "..") {
		folder := filepath.Dir(path)
		if strings.HasPrefix(folder, "test/") || strings.HasSuffix(folder, "test") || strings.HasPrefix(folder, "internal/testutil") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				name := folder + "." + receiver(f.Recv.List[0].Type)
				methods[name]++
				if !slices.Contains(files[name], path) {
					files[name] = append(files[name], path)
				}
			}
		}
	}
	for name, n := range methods {
		if n > maxMethods && len(files[name]) > max(maxFiles, spread[name]) {
			t.Errorf("%s has %d methods in %d files: want at most %d files, or several types", name, n, len(files[name]), max(maxFiles, spread[name]))
		}
	}
	for name, n := range spread {
		if got := len(files[name]); methods[name] <= maxMethods || got < n {
			t.Errorf("%s has %d methods in %d files: lower or remove its line in spread", name, methods[name], got)
		}
	}
}

func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
