"""Drives a session of the demo agent end to end, through a cut, and checks what it saw."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from muxclient import Client

Object = dict[str, Any]


class Drive:
    """One session, and all that came of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.session = ""
        self.seqs: list[int] = []
        self.types: list[str] = []
        self.deltas = 0
        self.cuts = 0
        self.answered: list[str] = []
        self.reports: list[str] = []
        self.ended = asyncio.Event()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        client.on_frame = self.frame
        client.on_report = lambda session, report: self.reports.append(report)

    def frame(self, method: str, params: Object) -> None:
        """Every frame, after it was folded."""
        if method in ("approval/requested", "question/requested") and params["id"] not in self.tasks:
            self.tasks[params["id"]] = asyncio.create_task(self.answer(method, params))
        if method == "session/event" and params["sessionId"] == self.session:
            self.event(params["event"])

    def event(self, event: Object) -> None:
        """Notes an event; in the middle of the first texts it cuts the connection."""
        if not event.get("seq"):
            self.deltas += 1
            if self.deltas in (3, 12):
                self.cuts += 1
                self.client.cut()
            return
        self.seqs.append(event["seq"])
        self.types.append(event["type"])
        if event["type"] == "turn/end":
            self.ended.set()

    async def answer(self, method: str, card: Object) -> None:
        """Plays the person."""
        if method == "approval/requested":
            won = await self.client.approve(card)
        else:
            won = await self.client.answer(card, [choice(q) for q in card["questions"]])
        self.answered.append(f"{method.split('/')[0]} of depth {card['depth']}: {'won' if won else 'was second'}")

    async def run(self, cwd: str) -> list[str]:
        """The whole drive; what was wrong."""
        client = self.client
        described = await client.again("host.describe", {})
        if "demo" not in [a["name"] for a in described["agents"]]:
            return ["the host has no demo agent"]
        made = await client.again("session.create", {"agent": "demo", "cwd": cwd, "requestId": str(uuid.uuid4())})
        self.session = made["session"]["sessionId"]
        await client.watch_tree(self.session)
        await client.prompt(self.session, "show me", str(uuid.uuid4()))
        await asyncio.wait_for(self.ended.wait(), 60)
        await asyncio.gather(*self.tasks.values())
        return await self.verify()

    async def verify(self) -> list[str]:
        """Compares with what the host says."""
        for _ in range(50):
            got = await self.client.again("session.get", {"sessionId": self.session, "view": True})
            if got["seq"] == self.client.sessions[self.session].fold.v["seq"]:
                break
            await asyncio.sleep(0.1)
        wrong = [] if self.seqs == list(range(1, got["seq"] + 1)) else [f"saw {self.seqs}, want 1..{got['seq']}"]
        mine = self.client.sessions[self.session].fold.durable()
        for name in sorted({*mine, *got["view"]}):
            if mine.get(name) != got["view"].get(name):
                wrong.append(f"{name}: folded {json.dumps(mine.get(name))}, "
                             f"the host has {json.dumps(got['view'].get(name))}")
        if self.cuts == 0 or self.client.connections != self.cuts + 1:
            wrong.append(f"{self.cuts} cuts, {self.client.connections} connections")
        if {a.split()[0] for a in self.answered} != {"approval", "question"}:
            wrong.append(f"answered only {self.answered}")
        return wrong + self.reports

    def show(self) -> None:
        """Prints what was seen."""
        fold = self.client.sessions[self.session].fold
        print(f"session {self.session}: events 1..{len(self.seqs)}, {self.deltas} live events, "
              f"{self.client.connections} connections, {len(self.client.sessions)} sessions in the tree")
        for item in fold.view()["items"]:
            text = " ".join(c.get("text", "") for c in item.get("content", []))
            print(f"  {item['seq']:4} {item['kind']:10} {text or item.get('tool', {}).get('name', '')}"[:100])
        for answer in self.answered:
            print("  " + answer)


def choice(question: Object) -> Object:
    """The first option of a question, or some text."""
    options = question.get("options")
    return {"id": question["id"], "labels": [options[0]["label"]]} if options else {"id": question["id"], "text": "yes"}


async def drive(url: str, token: str, patience: float = 5.0) -> list[str]:
    """Connects, drives, closes. The first connection has to come within `patience` seconds."""
    client = Client(url, token)
    try:
        try:
            await asyncio.wait_for(client.start(), patience)
        except asyncio.TimeoutError:
            return [f"no connection to {url} within {patience:g} s: is a host running there? (muxhost serve)"]
        driven = Drive(client)
        with tempfile.TemporaryDirectory() as cwd:
            wrong = await driven.run(cwd)
        driven.show()
        return wrong
    finally:
        await client.stop()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("token_file", type=Path)
    arguments = parser.parse_args()
    wrong = asyncio.run(drive(arguments.url, arguments.token_file.read_text().strip()))
    for line in wrong:
        print("FAIL: " + line)
    print("drive: " + ("failed" if wrong else "ok"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
