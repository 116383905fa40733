package session

// Fence is for tests.
var Fence = fence
