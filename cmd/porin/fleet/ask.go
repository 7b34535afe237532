package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// The bounds of questions to all agents.
const (
	// AtOnce is how many agents are asked at the same time.
	AtOnce = 20
	// Timeout is for the answer of one agent.
	Timeout = 5 * time.Second
	// maxAnswer bounds the answer of one agent, in bytes. It can take a hundred times as much memory.
	maxAnswer = 2 << 20
	// maxStderr is the part of an error that is kept.
	maxStderr = 4 << 10
)

// Answer is what the agent of a node has answered, or why it has not.
type Answer[T any] struct {
	Pod   Pod
	Value T
	Err   error
}

// Ask runs porin with the arguments and -o json in the container of each pod, [AtOnce] at a time and each for
// [Timeout]. It returns the answers in the order of the pods. stdin can be nil.
func Ask[T any](ctx context.Context, c Cluster, pods []Pod, stdin []byte, args ...string) []Answer[T] {
	answers := make([]Answer[T], len(pods))
	var group errgroup.Group
	group.SetLimit(AtOnce)
	for i, pod := range pods {
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, Timeout)
			defer cancel()
			value, err := ask[T](ctx, c, pod, stdin, args)
			answers[i] = Answer[T]{pod, value, err}
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
	return answers
}

func ask[T any](ctx context.Context, c Cluster, pod Pod, stdin []byte, args []string) (value T, err error) {
	answer, err := Output(ctx, c, pod, stdin, maxAnswer, append([]string{"porin", "-o", "json", "--timeout", Timeout.String()}, args...)...)
	if len(answer) == 0 && err != nil {
		return value, err
	}
	// A command that finds something wrong has both: its answer, and an exit code.
	if _, exited := errors.AsType[*ExitError](err); err != nil && !exited {
		return value, err
	}
	if err := json.Unmarshal(answer, &value); err != nil {
		return value, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return value, nil
}

// Runner runs commands in containers: a [Cluster].
type Runner interface {
	Run(ctx context.Context, pod Pod, command []string, stdin io.Reader, stdout, stderr io.Writer) error
}

// Output runs a command in a container and returns what it writes to stdout, at most limit bytes, also when the command
// has failed. stdin can be nil.
func Output(ctx context.Context, c Runner, pod Pod, stdin []byte, limit int, command ...string) ([]byte, error) {
	if !pod.Running {
		return nil, fmt.Errorf("its container does not run: %s", pod.Reason)
	}
	exec, end := context.WithCancel(ctx)
	defer end()
	stdout, stderr := &bounded{limit: limit, full: end}, new(tail)
	var in io.Reader
	if stdin != nil {
		in = bytes.NewReader(stdin)
	}
	err := c.Run(exec, pod, command, in, stdout, stderr)
	answer, exceeded := stdout.text()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, errors.New("no answer in time")
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case exceeded:
		return nil, fmt.Errorf("its answer is larger than %d MiB", limit>>20)
	case err != nil:
		return answer, commandError{err, stderr.text()}
	}
	return answer, nil
}

// commandError is the error of a command, with the last line that it has written to stderr.
type commandError struct {
	error
	stderr string
}

func (e commandError) Unwrap() error { return e.error }

func (e commandError) Error() string {
	if _, ok := errors.AsType[*ExitError](e.error); ok {
		lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
		if last := strings.TrimPrefix(lines[len(lines)-1], "porin: "); last != "" {
			return last
		}
	}
	return e.error.Error()
}
