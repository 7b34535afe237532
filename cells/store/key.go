package store

import (
	"fmt"
	"strings"
)

const (
	maxKey   = 512       // bytes
	maxValue = 64 * 1024 // bytes
)

// checkKey accepts segments of a-z 0-9 . : _ - with single slashes between them.
func checkKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: it has %d bytes, at most %d may be", ErrInvalid, len(key), maxKey)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" {
			return fmt.Errorf("%w: a part between slashes is empty", ErrInvalid)
		}
		if i := strings.IndexFunc(segment, isForeign); i >= 0 {
			return fmt.Errorf("%w: %q is none of a-z 0-9 . : _ -", ErrInvalid, segment[i:i+1])
		}
	}
	return nil
}

func isForeign(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune(".:_-", r)
}

// checkPrefix accepts "" and keys with a slash behind them: without the slash, "node/1" would be the prefix of "node/10".
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	key, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("%w: a prefix ends in a slash", ErrInvalid)
	}
	return checkKey(key)
}

func checkValue(value []byte) error {
	if len(value) > maxValue {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, len(value))
	}
	return nil
}
