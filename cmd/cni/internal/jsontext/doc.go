// Package jsontext reads and writes the little JSON that the plugin passes on: by hand, as a process that starts for
// every pod spends a quarter of a millisecond on the first use of encoding/json, a tenth of an ADD.
//
//	err := jsontext.Fields(config, func(key string, value []byte) (err error) {
//		switch key {
//		case "mtu":
//			mtu, err = jsontext.Int(value)
//		}
//		return err
//	})
//
// A value is its text. The reader accepts what encoding/json accepts (RFC 8259), less what is nested deeper than 200
// levels; a fuzz test holds it against encoding/json. Keys are compared as they are, and of two the same both are
// visited.
package jsontext
