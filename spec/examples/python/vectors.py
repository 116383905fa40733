"""Runs the vectors of spec/vectors: the folds through fold.py, the messages against fresh hosts."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import websockets
from websockets.legacy.client import connect

from fold import Fold, whole

Object = dict[str, Any]

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
WAIT = 10.0


class Failed(Exception):
    """A vector that did not come out."""


def load(path: Path) -> Object:
    """A vector, with its shorthand expanded."""
    return expand(json.loads(path.read_text("utf-8")))


def expand(value: Any) -> Any:
    """Joins {"$text": [[piece, count], …]} everywhere."""
    if isinstance(value, list):
        return [expand(v) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$text"}:
        return "".join(piece * count for piece, count in value["$text"])
    return {k: expand(v) for k, v in value.items()}


def number(value: int | float) -> float:
    """A number as an IEEE double."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return number(a) == number(b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return whole(a) == whole(b)


# ---- fold


def fold_vector(vector: Object, stored: bool) -> None:
    """Folds a vector; with `stored`, through JSON after each frame."""
    fold = Fold()
    views = {s["after"]: s["view"] for s in vector.get("steps", [])}
    views[len(vector["frames"])] = vector["view"]
    for i, frame in enumerate(vector["frames"]):
        params = frame.get("params", {})
        ours = params.get("sessionId") in (None, vector["session"])
        report = (fold.apply(frame["method"], params) if ours else None) or ""
        want = "missed" if vector.get("gap") == i else "malformed" if vector.get("refused") == i else ""
        if report.split(":")[0] != want:
            raise Failed(f"frame {i}: reported {report!r}, want {want!r}")
        if i + 1 in views and not same(fold.view(), views[i + 1]):
            raise Failed(f"after {i + 1} frames: {differ(fold.view(), views[i + 1])}")
        if stored and not fold.in_parts:
            fold = Fold(json.loads(json.dumps(fold.view())))


def differ(got: Object, want: Object) -> str:
    """The first member of two views that differs."""
    name = next(n for n in sorted({*got, *want}) if n not in got or n not in want or not same(got[n], want[n]))
    return f"{name} is {json.dumps(got.get(name))}, want {json.dumps(want.get(name))}"


# ---- rpc


def fill(text: str, bound: Object) -> str:
    """Puts bound values in the place of ${name}."""
    return re.sub(r"\$\{(\w+)\}", lambda m: str(bound[m[1]]), text)


SIMPLE = {
    "$any": lambda v: True,
    "$string": lambda v: isinstance(v, str),
    "$int": lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**53,
    "$uuid": lambda v: isinstance(v, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", v) is not None,
}


def match(pattern: Any, value: Any, bound: Object) -> bool:
    """Whether a value matches; what it binds goes into `bound`."""
    if isinstance(pattern, str):
        if pattern in SIMPLE:
            return SIMPLE[pattern](value)
        name = re.fullmatch(r"\$\{(\w+)\}", pattern)
        return same(bound.get(name[1]), value) if name else same(pattern, value)
    if isinstance(pattern, list):
        alike = isinstance(value, list) and len(value) == len(pattern)
        return alike and all(match(p, v, bound) for p, v in zip(pattern, value))
    if not isinstance(pattern, dict):
        return same(pattern, value)
    if set(pattern) == {"$bind"}:
        bound[pattern["$bind"]] = value
        return isinstance(value, (str, int, float)) and not isinstance(value, bool)
    if set(pattern) == {"$has"}:
        return isinstance(value, list) and all(any(matches(p, v, bound) for v in value) for p in pattern["$has"])
    if not isinstance(value, dict):
        return False
    return all(k not in value if p == "$absent" else k in value and match(p, value[k], bound)
               for k, p in pattern.items())


def matches(pattern: Any, value: Any, bound: Object) -> bool:
    """Like match, but binds only what matched as a whole."""
    trial = dict(bound)
    if not match(pattern, value, trial):
        return False
    bound.update(trial)
    return True


class Connection:
    """A raw connection, with what it received and was not yet looked at."""

    def __init__(self, ws: Any) -> None:
        self.ws = ws
        self.frames: list[Object] = []
        self.responses: list[Object] = []

    async def receive(self, deadline: float) -> None:
        """Takes in the next message."""
        text = await asyncio.wait_for(self.ws.recv(), deadline - time.monotonic())
        message = json.loads(text)
        (self.frames if "method" in message else self.responses).append(message)

    async def response(self, deadline: float) -> Object:
        """The next response."""
        while not self.responses:
            await self.receive(deadline)
        return self.responses.pop(0)

    async def frame(self, deadline: float) -> Object:
        """The next frame."""
        while not self.frames:
            await self.receive(deadline)
        return self.frames.pop(0)


class Run:
    """One vector against one host."""

    def __init__(self, url: str, token: str, cwd: str) -> None:
        self.url = "ws" + url.removeprefix("http") + "/v1/ws"
        self.token = token
        self.bound: Object = {"cwd": cwd}
        self.open: dict[str, Connection] = {}

    async def dial(self, token: str) -> Connection:
        """Opens a connection."""
        return Connection(await connect(
            self.url, subprotocols=["muxhost.v1"], extra_headers={"Authorization": "Bearer " + token},
            max_size=None, ping_interval=None))

    async def step(self, step: Object) -> None:
        """One step of a vector."""
        name = step.get("conn", "a")
        deadline = time.monotonic() + WAIT
        if step.get("reopen") and name in self.open:
            self.open.pop(name).ws.transport.abort()
        if name not in self.open:
            self.open[name] = await self.dial(fill(step.get("token", self.token), self.bound))
        conn = self.open[name]
        if "send" in step:
            await conn.ws.send(fill(step["send"], self.bound))
        if "expect" in step:
            response = await conn.response(deadline)
            if not matches(step["expect"], response, self.bound):
                raise Failed(f"answered {json.dumps(response)}, want {json.dumps(step['expect'])}")
        await self.search(conn, step, deadline)

    async def search(self, conn: Connection, step: Object, deadline: float) -> None:
        """Looks for `frames` and `also` side by side."""
        lists = [list(step.get("frames", [])), list(step.get("also", []))]
        while any(lists):
            try:
                frame = await conn.frame(deadline)
            except asyncio.TimeoutError as error:
                raise Failed(f"no frame like {json.dumps([w[0] for w in lists if w])}") from error
            if any(matches(p, frame, dict(self.bound)) for p in step.get("not", [])):
                raise Failed(f"came, and must not: {json.dumps(frame)}")
            wanted = next((w for w in lists if w and matches(w[0], frame, self.bound)), None)
            if wanted:
                wanted.pop(0)

    async def close(self) -> None:
        """Drops all connections."""
        for conn in self.open.values():
            conn.ws.transport.abort()


async def rpc_vector(vector: Object, url: str, token: str, cwd: str) -> None:
    """Plays a vector against a host."""
    run = Run(url, token, cwd)
    try:
        for i, step in enumerate(vector["steps"]):
            try:
                await run.step(step)
            except (Failed, asyncio.TimeoutError, OSError, websockets.WebSocketException) as error:
                raise Failed(f"step {i}: {type(error).__name__} {error}") from error
    finally:
        await run.close()


def rpc_on_fresh_host(vector: Object, muxhost: str) -> None:
    """Plays a vector against a host of its own."""
    with tempfile.TemporaryDirectory() as folder:
        state, cwd = Path(folder, "state"), Path(folder, "cwd")
        cwd.mkdir()
        serve = [muxhost, "serve", "--agent", "demo", "--state-dir", str(state), "--listen", "127.0.0.1:0"]
        host = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                env={**os.environ, "MUXHOST_STATE_DIR": str(state)})
        try:
            url = host.stdout.readline().strip()
            token = (state / "token").read_text().strip()
            asyncio.run(rpc_vector(vector, url, token, os.path.realpath(cwd)))
        finally:
            host.kill()
            host.wait()


# ---- all of them


def run_all(names: list[str], muxhost: str | None) -> int:
    """Runs the vectors, prints how it went; the number of failures."""
    passed, failed = {"fold": 0, "rpc": 0}, 0
    kinds = ("fold", "rpc") if muxhost else ("fold",)
    paths = [p for kind in kinds for p in sorted((VECTORS / kind).glob("*.json")) if not names or p.stem in names]
    with ThreadPoolExecutor(8) as pool:
        for path, wrong in zip(paths, pool.map(lambda p: play(p, muxhost), paths)):
            if wrong:
                failed += 1
                print(f"FAIL {path.parent.name}/{path.stem}: {wrong}")
            else:
                passed[path.parent.name] += 1
    print(f"vectors: {passed['fold']} fold, {passed['rpc']} rpc passed, {failed} failed")
    return failed


def play(path: Path, muxhost: str | None) -> str:
    """Plays one vector; what was wrong."""
    try:
        vector = load(path)
        if path.parent.name == "fold":
            fold_vector(vector, stored=False)
            fold_vector(vector, stored=True)
        elif muxhost:
            rpc_on_fresh_host(vector, muxhost)
        return ""
    except Failed as error:
        return str(error)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--muxhost", help="the program that is the host; without it only the folds run")
    parser.add_argument("names", nargs="*", help="vectors to run; default: all")
    arguments = parser.parse_args()
    sys.exit(1 if run_all(arguments.names, arguments.muxhost) else 0)


if __name__ == "__main__":
    main()
