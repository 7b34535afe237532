//go:build race

package http2proxy

const raceDetector = true
