// Package dnsname has what the DNS proxy and the policy share about names: their text, and the rules that match them.
//
//	bytes of a message --[AppendText]--> text --[Rules.Match]--> does a rule match?
//	                                      ^
//	            what package names is asked for, what records and metrics show
//
// The text of a name is written as in zone files, in lower case and without the dot at its end; the root is ".". Each
// name has one text, and each text is of one name: a byte of a label that is not printable, a dot or a backslash is
// written as \DDD. A rule has none of these, so no name can look like another one to it.
package dnsname
