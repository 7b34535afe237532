package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func endpointList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Endpoints(ctx, s.network)
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
		row(w, "ID", "STATE", "POD", "CONTAINER", "INTERFACE", "IPV4", "IPV6", "AGE")
		for _, ep := range list {
			row(w, ep.ID, ep.State, podName(ep.Pod), shortID(ep.ContainerID), ep.IfName,
				address(ep.Addresses.IPv4), address(ep.Addresses.IPv6), s.age(ep.Created))
		}
	})
}

func endpointGet(ctx context.Context, s *session, args []string) error {
	ep, err := s.client.Endpoint(ctx, args[0])
	if err != nil {
		return err
	}
	return s.print(ep, func(w io.Writer) { s.endpointTable(w, ep) })
}

func endpointDelete(ctx context.Context, s *session, args []string) error {
	result, err := deleteByRef(ctx, s, args[0])
	if err != nil {
		return err
	}
	if err := s.print(result, func(w io.Writer) { _, _ = fmt.Fprintln(w, count(result.Deleted, "endpoint")+" deleted") }); err != nil {
		return err
	}
	return leftover(result.Errors, result.Details)
}

func deleteByRef(ctx context.Context, s *session, ref string) (v1.DeleteResult, error) {
	if containerID, ok := strings.CutPrefix(ref, "container-id:"); ok {
		return s.client.DeleteContainer(ctx, v1.DeleteRequest{ContainerID: containerID})
	}
	return s.client.DeleteEndpoint(ctx, ref)
}

// endpointRefs are the numbers, as bash breaks words at the colons of the other references.
func endpointRefs(ctx context.Context, s *session) (all []candidate) {
	list, _ := s.client.Endpoints(ctx, "")
	for _, ep := range list {
		about := present(podName(ep.Pod), shortID(ep.ContainerID), ep.IfName)
		all = append(all, candidate{strconv.Itoa(int(ep.ID)), printable(about)})
	}
	return all
}
