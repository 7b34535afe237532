package main

// maxDepth is how deep a configuration may be nested: encoding/json reads no more than 10,000 levels, and real ones
// have ten.
const maxDepth = 1000

// shallow returns the JSON text with null in place of values nested deeper than maxDepth, in a new slice if it replaces
// any. For a text that is not JSON the result is not JSON either.
func shallow(text []byte) []byte {
	var out []byte
	depth, from, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth == maxDepth+1 {
				out = append(append(out, text[from:i]...), "null"...)
			}
		case c == '}' || c == ']':
			if depth--; depth == maxDepth {
				from = i + 1
			}
		}
	}
	switch {
	case out == nil:
		return text
	case depth > maxDepth: // it ends within
		return out
	}
	return append(out, text[from:]...)
}
