package client

// SetLimits makes the buffer of Frames smaller, before anything is read.
func (c *Client) SetLimits(soft, hard int) { c.queue.soft, c.queue.hard = soft, hard }
