package httpproxy

import "strconv"

// maxOptions bounds the names in a head's Connection headers, since each is looked for among all headers.
const maxOptions = 32

// options is what a head says about its connection.
type options struct {
	close    bool
	upgrade  bool // "upgrade" is listed
	upgrades int  // Upgrade headers
	offer    []byte
	trailers bool // TE asks for them
}

// readOptions reads the headers that concern only one connection, and marks them as not to be forwarded, with the
// headers that Connection lists (RFC 9110, 7.6.1). Headers which say where a message goes or ends are forwarded
// whatever Connection lists.
func readOptions(head []byte, fields []field) (o options, ok bool) {
	names := 0
	for i := range fields {
		f := &fields[i]
		switch f.known {
		case hConnection:
			f.drop = true
			elements(f.valueOf(head), func(name []byte) bool {
				names++
				o.read(head, fields, name)
				return names <= maxOptions
			})
		case hKeepAlive, hProxyConnection:
			f.drop = true
		case hTE:
			f.drop = true
			elements(f.valueOf(head), func(coding []byte) bool {
				o.trailers = o.trailers || sameName(coding, "trailers")
				return true
			})
		case hUpgrade:
			f.drop = true
			o.upgrades++
			o.offer = f.valueOf(head)
		}
	}
	return o, names <= maxOptions
}

func (o *options) read(head []byte, fields []field, name []byte) {
	switch {
	case sameName(name, "close"):
		o.close = true
	case sameName(name, "upgrade"):
		o.upgrade = true
	}
	if !all(name, inToken) {
		return
	}
	for i := range fields {
		f := &fields[i]
		switch f.known {
		case hHost, hContentLength, hTransferEncoding, hTrailer, hExpect:
		default:
			f.drop = f.drop || sameName(f.nameOf(head), name)
		}
	}
}

// writeFields writes the header lines that are forwarded, each as it was received. It writes Content-Length and
// Transfer-Encoding in one form, so that the server reads the same end of the message.
func writeFields(w *writer, head []byte, fields []field, body framing) {
	for i := 0; i < len(fields); {
		f := &fields[i]
		switch {
		case f.drop:
			i++
			continue
		case f.known == hContentLength:
			w.writeText("Content-Length: " + strconv.FormatInt(body.length, 10) + "\r\n")
			i++
			continue
		case f.known == hTransferEncoding:
			w.writeText("Transfer-Encoding: chunked\r\n")
			i++
			continue
		}
		for i < len(fields) && !fields[i].drop && fields[i].known != hContentLength && fields[i].known != hTransferEncoding {
			i++
		}
		w.write(head[f.start:fields[i-1].end])
	}
}
