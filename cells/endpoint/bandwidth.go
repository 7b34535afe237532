package endpoint

import (
	"errors"
	"fmt"
	"math"
)

// Limits of a rate, in bits per second: Kubernetes' limits for its annotations. Above the limit of a burst, in bits,
// the CNI plugin bandwidth takes none either.
const (
	minRate  = 1000
	maxRate  = 1e15
	maxBurst = math.MaxUint32 * 8
)

// ValidateBandwidth reports every limit that cannot be.
func ValidateBandwidth(b Bandwidth) error {
	return errors.Join(
		validateRate("ingressRate", b.IngressRate, "ingressBurst", b.IngressBurst),
		validateRate("egressRate", b.EgressRate, "egressBurst", b.EgressBurst),
	)
}

func validateRate(rateName string, rate uint64, burstName string, burst uint64) error {
	switch {
	case rate == 0 && !IsDefaultBurst(burst):
		return fmt.Errorf("bandwidth: %s %d without %s", burstName, burst, rateName)
	case rate != 0 && (rate < minRate || rate > maxRate):
		return fmt.Errorf("bandwidth: %s %d: want %d to %d bits per second, or 0 for no limit", rateName, rate, minRate, uint64(maxRate))
	case burst >= maxBurst:
		return fmt.Errorf("bandwidth: %s %d: want less than %d bits", burstName, burst, uint64(maxBurst))
	}
	return nil
}

// IsDefaultBurst reports whether the burst is what a runtime gives for want of an opinion: CRI-O gives math.MaxInt32,
// and containerd math.MaxUint32.
func IsDefaultBurst(burst uint64) bool {
	return burst == 0 || burst == math.MaxInt32 || burst == math.MaxUint32
}

// IsLimited reports whether anything is.
func (s Spec) IsLimited() bool { return s.Bandwidth.IngressRate != 0 || s.Bandwidth.EgressRate != 0 }
