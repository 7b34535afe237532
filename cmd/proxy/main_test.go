package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/fx"

	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/testutil/reference"
)

// TestGraph builds the whole proxy, every constructor of it, and checks that nothing is missing.
func TestGraph(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Control.Socket, cfg.Control.StateDir, cfg.BPFRoot = filepath.Join(t.TempDir(), "proxy.sock"), t.TempDir(), t.TempDir()
	if err := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestRunFaults(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown flag":    {"--proxy-sock=/x"},
		"unknown command": {"serve"},
		"relative path":   {"--proxy-socket=proxy.sock"},
		"long drain":      {"--drain-timeout=48h"},
		"log level":       {"--log-level=loud"},
	} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &out); err != nil || !strings.Contains(out.String(), "--drain-timeout") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestProxyReference(t *testing.T) {
	cfg := DefaultConfig()
	fs := pflag.NewFlagSet("porin-proxy", pflag.ContinueOnError)
	fs.SortFlags = false
	cfg.Flags(fs)
	rows := [][]string{{"`--config` file", "", "YAML file of the other flags' names"}}
	fs.VisitAll(func(f *pflag.Flag) {
		kind, usage := pflag.UnquoteUsage(f)
		rows = append(rows, []string{strings.TrimSpace("`--" + f.Name + "` " + kind), reference.Code(f.DefValue), usage})
	})
	text, _, _ := strings.Cut(usage, "\nFlags:")
	reference.Check(t, "proxy.md", "# porin-proxy\n\n```\n"+text+"```\n\n"+
		"The exit code is 0 after SIGTERM or SIGINT, or when another one has taken over, and 1 when it could not start, or a cell gave up; its log says why.\n\n"+
		reference.Table([]string{"flag", "default", "meaning"}, rows))
}
