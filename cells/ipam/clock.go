package ipam

import (
	"math"
	"time"
)

// never is when an address was released that was not in use yet. Other such times are by the allocator's own clock, which
// nobody sets.
const never = time.Duration(math.MinInt64)
