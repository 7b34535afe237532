package deletionrecords

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Record is one deletion: of one attachment, or of all of a container's when IfName is empty.
type Record struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname,omitempty"`
	Network     string `json:"network,omitempty"` // name of the CNI network configuration
	Began       int64  `json:"began"`             // when the DEL began, in nanoseconds of CLOCK_BOOTTIME
	Boot        string `json:"boot,omitempty"`    // of which boot that is, as internal/boottime.ID; "" when it is not known
	// These are of an attachment whose addresses another IPAM plugin gave: the input of that plugin.
	IPAM   string `json:"ipam,omitempty"`   // its type
	Config string `json:"config,omitempty"` // the network configuration
	Args   string `json:"args,omitempty"`   // CNI_ARGS
	NetNS  string `json:"netns,omitempty"`  // CNI_NETNS
}

// maxRecord bounds what is read of a file, in bytes. A network configuration that the plugin takes may become six times
// as long.
const maxRecord = 4 << 20

var errNoContainer = errors.New("it names no container")

func (r Record) encode() ([]byte, error) {
	if r.ContainerID == "" {
		return nil, errNoContainer
	}
	return json.Marshal(r)
}

// decode reads what encode wrote. Fields that a later plugin adds are skipped.
func decode(content []byte) (r Record, err error) {
	if len(content) > maxRecord {
		return Record{}, fmt.Errorf("it is larger than %d bytes", maxRecord)
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return Record{}, err
	}
	if r.ContainerID == "" {
		return Record{}, errNoContainer
	}
	return r, nil
}

func readRecord(path string) (Record, error) {
	file, err := os.Open(path)
	if err != nil {
		return Record{}, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err != nil {
		return Record{}, err
	}
	return decode(content)
}
