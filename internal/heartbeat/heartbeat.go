// Package heartbeat is a file that tells the CNI plugin, without an agent, that an agent was there lately.
package heartbeat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"porin.dev/porin/internal/boottime"
)

// Fresh is how old a heartbeat may be: as long as an agent may be away while STATUS succeeds.
const Fresh = 5 * time.Minute

// fileName is the name of the file in the agent's state directory: "BOOT-ID NANOSECONDS", the latter of CLOCK_BOOTTIME.
const fileName = "heartbeat"

// ErrStale is returned when no agent has beaten in this boot, or not for [Fresh].
var ErrStale = errors.New("no porin-agent has run on this node for 5 minutes")

// Beat writes the file, in place of an existing one.
func Beat(stateDir string) error {
	boot, err := boottime.ID()
	if err != nil {
		return err
	}
	path := filepath.Join(stateDir, fileName)
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, []byte(boot+" "+strconv.FormatInt(boottime.Now().Nanoseconds(), 10)+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the heartbeat: %w", err)
	}
	return os.Rename(temporary, path)
}

// Check returns [ErrStale], or why the file cannot be read, unless an agent of this boot has beaten lately.
func Check(stateDir string) error {
	text, err := os.ReadFile(filepath.Join(stateDir, fileName))
	if errors.Is(err, os.ErrNotExist) {
		return ErrStale
	}
	if err != nil {
		return err
	}
	boot, err := boottime.ID()
	if err != nil {
		return err
	}
	of, at, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	nanoseconds, err := strconv.ParseInt(at, 10, 64)
	if age := boottime.Now() - time.Duration(nanoseconds); err != nil || of != boot || age < 0 || age > Fresh {
		return ErrStale
	}
	return nil
}
