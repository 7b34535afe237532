package v1

import "time"

// Status is the answer of GET /v1/status.
type Status struct {
	Version   string         `json:"version"`
	Node      string         `json:"node"`
	PID       int            `json:"pid"`
	Started   time.Time      `json:"started"`
	Ready     bool           `json:"ready"`
	Endpoints map[string]int `json:"endpoints"` // by state
	Restored  Restored       `json:"restored"`
	Datapath  Datapath       `json:"datapath"`
}

// Restored says what the agent found when it started.
type Restored struct {
	Adopted int `json:"adopted"` // endpoints taken over as they were
	Undone  int `json:"undone"`  // attachments that were half made, or could not be brought back
	// Duration is how long the restore took, in nanoseconds.
	Duration time.Duration `json:"duration"`
}

// Datapath says what is loaded in the kernel.
type Datapath struct {
	Digest   string    `json:"digest"`  // of the BPF object and its configuration
	Adopted  bool      `json:"adopted"` // the programs were there when the agent started, and were not loaded again
	Programs []Program `json:"programs"`
	// Missing names what this kernel lacks and what Porin does without it.
	Missing []string `json:"missing,omitempty"`
}

// Program is one loaded BPF program.
type Program struct {
	Name string `json:"name"`
	ID   uint32 `json:"id"`
	Tag  string `json:"tag"`
}
