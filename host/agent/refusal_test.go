package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/muxhost/muxhost/frames"
	"github.com/muxhost/muxhost/host/agent"
)

// A call that was not run says why, and who said so where that is known.
func TestRefusalSaysWhy(t *testing.T) {
	for want, d := range map[string]agent.Decision{
		"rejected: Not run: rejected by a person.":                                      {Outcome: frames.Rejected, Cause: frames.CauseReply},
		"rejected: Not run: rejected by my phone. Feedback: not on prod":                {Outcome: frames.Rejected, Cause: frames.CauseReply, By: &frames.By{Label: "my phone"}, Feedback: "not on prod"},
		"rejected: Not run: nobody answered in time.":                                   {Outcome: frames.Rejected, Cause: frames.CauseTimeout},
		"rejected: Not run: the session's policy rejects it.":                           {Outcome: frames.Rejected, Cause: frames.CausePolicy},
		"rejected: Not run: the session was switched to deny mode.":                     {Outcome: frames.Rejected, Cause: frames.CauseModeChange},
		"rejected: Not run: rejected (abort).":                                          {Outcome: frames.Rejected, Cause: frames.CauseAbort},
		"rejected: Not run: the host could not store the answer, so it does not count.": {Outcome: frames.Unavailable, Cause: frames.CauseAbort},
		"rejected: Not run: the answer allowed it but named no input.":                  {Outcome: frames.AllowedOnce, Cause: frames.CauseReply},
		"cancelled: Not run: the turn was cancelled before anybody answered.":           {Outcome: frames.Cancelled, Cause: frames.CauseCascade},
	} {
		code, text := d.Refusal()
		if got := code + ": " + text; got != want || d.Allowed() {
			t.Errorf("%+v: %q; want %q", d, got, want)
		}
	}
	if d := (agent.Decision{Outcome: frames.AllowedOnce, Input: json.RawMessage("{}")}); !d.Allowed() {
		t.Error("a decision with its input does not allow")
	}
}
