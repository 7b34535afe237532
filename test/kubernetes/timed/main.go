// Command timed takes the place of a CNI plugin in the benchmark: it runs the plugin NAME.real and writes how long the
// call took.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"time"
)

// times is where the calls are, one a line: command, container, nanoseconds.
const times = "/var/log/cni-times"

func main() {
	began := time.Now()
	plugin := exec.Command(os.Args[0] + ".real")
	plugin.Stdin, plugin.Stdout, plugin.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := plugin.Run()
	took := time.Since(began)
	if file, err := os.OpenFile(times, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintln(file, os.Getenv("CNI_COMMAND"), os.Getenv("CNI_CONTAINERID"), took.Nanoseconds())
		_ = file.Close()
	}
	if err != nil {
		os.Exit(max(plugin.ProcessState.ExitCode(), 1))
	}
}
