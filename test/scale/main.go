// Command scale measures what the addresses of a cluster cost, in one process and without root. The bench runs it.
//
//	scale ipam      an address of an own block, given out and taken back
//	scale store     how many calls claims and pods cost the store, and how many blocks a cluster has
//
// Both print figures as a JSON object.
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
	}
	return errors.New("usage: scale ipam | scale store")
}

// figures are by name.
type figures map[string]float64

func print(f figures, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}
