package settings

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
)

// Logging says what is logged, and how.
type Logging struct {
	Level  string
	Format string
}

// DefaultLogging is what a daemon runs with unless told otherwise.
func DefaultLogging() Logging { return Logging{Level: "info", Format: "text"} }

// Flags adds the flags of logging.
func (l *Logging) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Level, "log-level", l.Level, "debug, info, warn or error")
	fs.StringVar(&l.Format, "log-format", l.Format, "text or json")
}

// Logger returns a logger that writes to w, or an error about the settings.
func (l Logging) Logger(w *os.File) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fmt.Errorf("log-level %q: want debug, info, warn or error", l.Level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log-format %q: want text or json", l.Format)
}
