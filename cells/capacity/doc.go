// Package capacity knows whether the next ADD would find what it needs, and when that will end.
//
//	every few seconds --> each [Source].Resources (endpointmanager, ipam, datapath) --> trend
//	GET /v1/status    --> the same, now, with a forecast by the trend               --> porin status, CNI STATUS
//
// A resource is not available while its source says so, or while less of it is left than its reserve. The forecast is
// for what grows steadily: it is a straight line through the use of the last ten minutes, which is given only when the
// line explains the use well, so that one burst is no trend.
package capacity
