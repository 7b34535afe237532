//go:build race

package model

// With the race detector, which is several times slower, only the smaller searches run.
const raceDetector = true
