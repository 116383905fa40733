// Package term makes text from the host safe to print on a terminal, and knows
// what the terminal can do.
//
// Nothing that an agent, a command or another client wrote may move the cursor,
// set the clipboard, change colours or reorder what a person reads. [Clean] drops
// control, escape and bidirectional characters; [Visible] shows them, for text on
// which a person decides.
package term
