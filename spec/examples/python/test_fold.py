"""Chunk rules, cuts and copies, in small: python3 -m unittest."""

from __future__ import annotations

import unittest

from fold import Fold, append_chunks, tail, whole


def live(turn: str, **data: object) -> dict[str, object]:
    """The params of a delta."""
    event = {"type": "assistant/delta", "after": 1, "ts": "2026-11-30T12:00:00.000Z", "turnId": turn, "data": data}
    return {"sessionId": "s", "event": event}


class Chunks(unittest.TestCase):
    """The rule of from and to."""

    def setUp(self) -> None:
        self.block = {"text": "ab", "to": 2}

    def test_had(self) -> None:
        self.assertEqual(append_chunks(self.block, 0, 2, "ab"), "had")
        self.assertEqual(self.block, {"text": "ab", "to": 2})

    def test_next(self) -> None:
        self.assertEqual(append_chunks(self.block, 2, 4, "cd"), "appended")
        self.assertEqual(self.block, {"text": "abcd", "to": 4})

    def test_missed(self) -> None:
        self.assertEqual(append_chunks(self.block, 3, 4, "d"), "missed")

    def test_overlap_is_missed(self) -> None:
        self.assertEqual(append_chunks(self.block, 1, 3, "bc"), "missed")
        self.assertEqual(self.block, {"text": "ab", "to": 2})


class Texts(unittest.TestCase):
    """Bytes and characters."""

    def test_tail_begins_at_a_character(self) -> None:
        kept = tail("é" * 40000 + "x")
        self.assertEqual(len(kept.encode()), 65535)
        self.assertTrue(kept.startswith("é"))

    def test_short_texts_stay(self) -> None:
        self.assertEqual(tail("a"), "a")

    def test_half_a_pair(self) -> None:
        self.assertEqual(whole("a\ud83db"), "a\ufffdb")


class Live(unittest.TestCase):
    """Deltas and the turn they are for."""

    def test_unseen_turn_is_a_gap(self) -> None:
        fold = Fold()
        fold.apply("session/event", live("t9", block=0, **{"from": 0}, to=1, text="x"))
        self.assertTrue(fold.view()["gaps"])

    def test_malformed(self) -> None:
        fold = Fold()
        report = fold.apply("session/event", live("t9", block="0", **{"from": 0}, to=1, text="x"))
        self.assertTrue(report and report.startswith("malformed"))
        self.assertNotIn("gaps", fold.view())


if __name__ == "__main__":
    unittest.main()
