package fault

import "errors"

type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// WithHint says what to do about err, for whoever reads it, and leaves its text and kind. "" says that the text has it
// already. Whoever makes an error knows that best: from its kind alone one can only guess. A nil err stays nil.
func WithHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &hinted{err, hint}
}

// HintOf returns the outermost hint in err's chain. It is false when there is none.
func HintOf(err error) (hint string, ok bool) {
	h, ok := errors.AsType[*hinted](err)
	if !ok {
		return "", false
	}
	return h.hint, true
}
