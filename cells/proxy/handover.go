package proxy

import "porin.dev/porin/cells/proxy/redirect"

// OnListeners has f told of the listening sockets whenever the way into the proxy is opened, and of nil when it is removed. It is called before Start.
// f must not call the proxy.
func (p *Proxy) OnListeners(f func(*redirect.Listeners)) { p.opened = f }

// TakeOver has the proxy use what another one gave, when it opens the way next. It closes what it is given.
func (p *Proxy) TakeOver(given redirect.Handover) error { return p.redirect.TakeOver(given) }

// HandOver returns what the next proxy needs, which takes over while this one goes on: see [redirect.Redirect.HandOver].
func (p *Proxy) HandOver() (redirect.Handover, error) { return p.redirect.HandOver() }

// Repair has the way into the proxy be as it should, such as after an agent has made its maps anew. It does nothing unless the way is open.
func (p *Proxy) Repair() error { return p.redirect.Repair() }

// AbortHandover takes HandOver back.
func (p *Proxy) AbortHandover() error { return p.redirect.AbortHandover() }
