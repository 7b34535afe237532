package doctor

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
)

// Config says how often the agent examines, and whether it repairs what it finds.
type Config struct {
	// Interval is the time between two examinations; 0 examines only when asked by GET /v1/doctor.
	Interval time.Duration
	// Repair is false to only report.
	Repair bool
}

// DefaultConfig is what the agent runs with by default.
func DefaultConfig() Config { return Config{Interval: 30 * time.Second, Repair: true} }

// Flags adds the flags of the doctor.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.DurationVar(&c.Interval, "doctor-interval", c.Interval, "`time` between two examinations; 0 examines only when asked")
	fs.BoolVar(&c.Repair, "doctor-repair", c.Repair, "repair what two examinations in a row have found; false only reports it. What the kernel tells of, such as a route of a pod that another program removes, the agent restores in any case")
}

// Validate reports every fault.
func (c Config) Validate() error {
	if c.Interval != 0 && c.Interval < minGap {
		return fmt.Errorf("doctor-interval %s: want 0, or at least %s", c.Interval, minGap)
	}
	return nil
}
