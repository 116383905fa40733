package agent

import (
	"fmt"

	"github.com/muxhost/muxhost/frames"
)

// Refusal says why a call was not run, in words for people and models, with the code
// of its result: "cancelled" where the turn ended, else "rejected". It is for decisions
// that are not [Decision.Allowed]; without By it names nobody.
func (d Decision) Refusal() (code, text string) {
	who := "a person"
	if d.By != nil && d.By.Label != "" {
		who = d.By.Label
	}
	switch {
	case d.Outcome == frames.Cancelled:
		return "cancelled", "Not run: the turn was cancelled before anybody answered."
	case d.Outcome == frames.Unavailable:
		return "rejected", "Not run: the host could not store the answer, so it does not count."
	case d.Outcome.Allows():
		return "rejected", "Not run: the answer allowed it but named no input."
	}
	switch d.Cause {
	case frames.CauseTimeout:
		text = "Not run: nobody answered in time."
	case frames.CausePolicy:
		text = "Not run: the session's policy rejects it."
	case frames.CauseModeChange:
		text = "Not run: the session was switched to deny mode."
	case frames.CauseReply:
		text = "Not run: rejected by " + who + "."
	default:
		text = fmt.Sprintf("Not run: rejected (%s).", d.Cause)
	}
	if d.Feedback != "" {
		text += " Feedback: " + d.Feedback
	}
	return "rejected", text
}
