package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
)

func ExampleClient_Endpoint() {
	c := client.New(v1.DefaultSocket)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	ep, err := c.Endpoint(ctx, "pod-name:default/web-0")
	problem, _ := errors.AsType[*v1.Problem](err)
	switch {
	case err == nil:
		fmt.Println(ep.Addresses.IPv4)
	case problem != nil && problem.Code == v1.CodeNotFound:
		fmt.Println("there is no such pod on this node")
	case errors.Is(err, client.ErrUnreachable):
		fmt.Println("the agent does not run")
	}
}
