package mux

// Held returns the bytes that c's control queue holds, and what is under way of
// it in a write.
func Held(c *Conn) int { return c.heldBytes() }
