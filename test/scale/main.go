// Command scale measures what the addresses of a cluster cost, in one process and without root. The bench runs it.
//
//	scale ipam      an address of an own block, given out and taken back
//	scale store     what claims and blocks cost the store, which is an etcd of its own
//	scale start     how long many nodes that start together take until each has a block
//	scale fanout    what telling 250 agents of a hundred changes a second takes an etcd
//	scale etcd DIR  is an etcd on the Unix socket DIR/client, until its input ends
//
// All but the last print figures as a JSON object.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "ipam":
		return print(measureIPAM())
	case len(args) == 1 && args[0] == "store":
		return print(inStore(ctx, measureCluster, measureClaims))
	case len(args) == 1 && args[0] == "start":
		return print(measureStart(ctx))
	case len(args) == 1 && args[0] == "fanout":
		return print(measureFanout(ctx))
	case len(args) == 2 && args[0] == "etcd":
		return serveEtcd(args[1], os.Stdin)
	}
	return errors.New("usage: scale ipam | scale store | scale start | scale fanout | scale etcd DIR")
}

// figures are by name.
type figures map[string]float64

func print(f figures, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}
