// Package nft keeps tables of nftables that are Porin's own as they should be.
//
//	desired [State] -> [Owner.Apply] -> one transaction, of what differs
//	other programs  -> [Owner.Run]   -> the last Apply again, by the rules of package reconcile
//
// A [Table] has chains and rules that never change, and sets and maps whose elements do. An [Owner] remembers what the
// table has, and the generation of the ruleset, which the kernel raises with each transaction of any program. It reads
// the table again only when another program has changed the ruleset meanwhile.
package nft
