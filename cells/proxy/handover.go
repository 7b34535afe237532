package proxy

import "porin.dev/porin/cells/proxy/redirect"

// TakeOver has the proxy use what another one gave, when it opens the way next. It closes what it is given.
func (p *Proxy) TakeOver(given redirect.Handover) error { return p.redirect.TakeOver(given) }

// HandOver returns what the next proxy needs, which takes over while this one goes on: see [redirect.Redirect.HandOver].
func (p *Proxy) HandOver() (redirect.Handover, error) { return p.redirect.HandOver() }

// AbortHandover takes HandOver back.
func (p *Proxy) AbortHandover() error { return p.redirect.AbortHandover() }
