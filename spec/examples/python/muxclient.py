"""A client of muxhost: one WebSocket, JSON-RPC calls up, frames down, cursors that survive a cut."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any, Awaitable, Callable
from urllib.parse import quote

import websockets
from websockets.legacy.client import connect

from fold import Fold

Object = dict[str, Any]

SUBPROTOCOL = "muxhost.v1"
DO_NOT_COME_BACK = (4001, 4029)
SILENCE = 40.0  # seconds; the host sends mux/heartbeat every 15


class Lost(Exception):
    """The connection went before the answer came: whether the call was done is not known."""


class CallError(Exception):
    """The host's error to a call."""

    def __init__(self, error: Object) -> None:
        super().__init__(error.get("message", ""))
        self.code: int = error.get("code", 0)
        data = error.get("data") or {}
        self.kind: str = data.get("kind", "")
        self.details: Object = data.get("details") or {}


class Session:
    """What a client holds of one session."""

    def __init__(self, fold: Fold | None = None) -> None:
        self.fold = fold or Fold()
        self.epoch: str | None = None
        self.anew = False  # a subscription from 0 is under way, whose session/subscribed begins a new view


class Client:
    """Keeps a connection until it is closed, and folds what was subscribed."""

    def __init__(self, url: str, token: str, label: str = "python example") -> None:
        """`url` is http(s)://…, as the host prints it."""
        self._url = "ws" + url.removeprefix("http").rstrip("/") + "/v1/ws?label=" + quote(label, safe="")
        self._token = token
        self._ws: Any = None
        self._up = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 1
        self._wait = 0.0
        self._trees: set[str] = set()
        self._runner: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[Any]] = set()
        self.sessions: dict[str, Session] = {}
        self.on_frame: Callable[[str, Object], None] = lambda method, params: None
        self.on_report: Callable[[str, str], None] = lambda session, report: None
        self.connections = 0
        self.closed: int | None = None  # the close code after which it does not come back

    # ---- the connection

    async def start(self) -> None:
        """Connects, and comes back after each cut."""
        self._runner = asyncio.create_task(self._run())
        up = asyncio.create_task(self._up.wait())
        await asyncio.wait({up, self._runner}, return_when=asyncio.FIRST_COMPLETED)
        if self._runner.done():
            up.cancel()
            self._runner.result()
            raise Lost(f"closed with {self.closed}")

    async def stop(self) -> None:
        """Closes for good."""
        if self._runner:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        if self._ws:
            await self._ws.close()

    def cut(self) -> None:
        """Drops the TCP connection without a close frame, as a bad network does."""
        if self._ws:
            self._ws.transport.abort()

    async def _run(self) -> None:
        while self.closed is None:
            try:
                await self._connect_once()
            except (OSError, asyncio.TimeoutError, websockets.InvalidHandshake) as error:
                if getattr(error, "status_code", None) in (401, 403):
                    raise
            if self.closed is None:
                self._wait = min(30.0, max(self._wait * 2, 0.25))
                await asyncio.sleep(self._wait * random.uniform(0.5, 1))
        self._up.set()  # wakes who waits, to hear that it is over

    async def _connect_once(self) -> None:
        """One connection, from its opening to its end."""
        header = {"Authorization": "Bearer " + self._token}
        async with connect(self._url, subprotocols=[SUBPROTOCOL], extra_headers=header,
                                      max_size=None, ping_interval=None) as ws:
            if ws.subprotocol != SUBPROTOCOL:
                raise websockets.InvalidHandshake("the host did not take " + SUBPROTOCOL)
            self._ws = ws
            self.connections += 1
            self._up.set()
            resuming = asyncio.create_task(self._resume())
            try:
                await self._read(ws)
            finally:
                self._down(ws)
                await asyncio.gather(resuming, return_exceptions=True)

    async def _read(self, ws: Any) -> None:
        """Reads until the connection ends, or is silent for too long."""
        try:
            while True:
                self._message(json.loads(await asyncio.wait_for(ws.recv(), SILENCE)))
        except asyncio.TimeoutError:
            ws.transport.abort()
        except websockets.ConnectionClosed as closed:
            if closed.rcvd and closed.rcvd.code in DO_NOT_COME_BACK:
                self.closed = closed.rcvd.code

    def _down(self, ws: Any) -> None:
        self._up.clear()
        self._ws = None
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(Lost("the connection was lost"))

    def _chore(self, work: Awaitable[Any]) -> None:
        """Does something beside the reading; a lost connection is mended by the next resume."""
        async def quiet() -> None:
            try:
                await work
            except (Lost, CallError) as error:
                self.on_report("", f"{type(error).__name__}: {error}")
        task = asyncio.create_task(quiet())
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # ---- calls

    async def call(self, method: str, params: Object | None = None) -> Any:
        """One call. Raises CallError, or Lost."""
        ws = self._ws
        if ws is None:
            raise Lost("not connected")
        number, self._next = self._next, self._next + 1
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        try:
            await ws.send(json.dumps(request))
        except websockets.ConnectionClosed as error:
            self._waiting.pop(number, None)
            raise Lost("the connection was lost") from error
        return await future

    async def again(self, method: str, params: Object) -> Any:
        """A call that may be repeated: it reads, or carries an id that makes repeats harmless."""
        while True:
            await self._up.wait()
            try:
                return await self.call(method, params)
            except Lost:
                if self.closed is not None:
                    raise
                await asyncio.sleep(0.05)

    def _message(self, message: Object) -> None:
        if "method" in message:
            self._frame(message["method"], message.get("params") or {})
            return
        future = self._waiting.pop(message.get("id"), None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(CallError(message["error"]))
        else:
            future.set_result(message.get("result"))

    # ---- subscriptions

    async def watch(self, session: str) -> None:
        """Subscribes a session from its beginning; it stays subscribed over cuts."""
        self.sessions.setdefault(session, Session()).anew = True
        try:
            await self._subscribe([session])
        except Lost:
            pass  # the next connection subscribes it

    async def watch_tree(self, session: str) -> None:
        """Likewise, with all of its descendants, which get sessions of their own."""
        self._trees.add(session)
        await self.watch(session)

    async def _resume(self) -> None:
        """After each connect: goes on where each session stands."""
        try:
            if self.sessions:
                await self._subscribe(list(self.sessions))
            self._wait = 0.0
        except Lost:
            pass
        except CallError as error:
            self.on_report("", str(error))

    async def _subscribe(self, names: list[str]) -> None:
        entries = [self._entry(n, self.sessions[n]) for n in names]
        try:
            results = await self.call("mux.subscribe", {"sessions": entries})
        except CallError as error:
            if len(names) > 1 and error.kind:  # none succeeded: ask for each, to learn why
                for name in names:
                    await self._subscribe([name])
                return
            await self._failed(names[0], error)
            return
        for result in results:
            if "error" in result:
                await self._failed(result["sessionId"], CallError(result["error"]))

    def _entry(self, name: str, session: Session) -> Object:
        entry: Object = {"sessionId": name, "since": 0 if session.anew else session.fold.v["seq"]}
        if session.epoch and not session.anew:
            entry["epoch"] = session.epoch
        if name in self._trees:
            entry["tree"] = True
        return entry

    async def _failed(self, name: str, error: CallError) -> None:
        """An entry that was not subscribed: begins anew where the log was replaced or trimmed."""
        session = self.sessions.get(name)
        if session and not session.anew and error.kind in ("cursor-expired", "cursor-ahead"):
            await self.watch(name)
        else:
            self.sessions.pop(name, None)
            self.on_report(name, f"{error.kind}: {error}")

    def _frame(self, method: str, params: Object) -> None:
        name = params.get("sessionId")
        if method == "host/session-added" and params.get("session", {}).get("rootSessionId") in self._trees:
            self.sessions.setdefault(name, Session())
        if method == "host/subscribed":
            for session in self.sessions.values():
                session.fold.apply(method, params)
        elif name in self.sessions:
            self._session_frame(name, self.sessions[name], method, params)
        self.on_frame(method, params)

    def _session_frame(self, name: str, session: Session, method: str, params: Object) -> None:
        if method == "session/unsubscribed":
            if params.get("reason") == "cursor-expired":
                self._chore(self.watch(name))
            else:
                self.sessions.pop(name, None)
            return
        if method == "session/subscribed":
            session.epoch = params.get("epoch")
            if session.anew and not params.get("since"):
                session.fold, session.anew = Fold(), False
        report = session.fold.apply(method, params)
        if report == "missed":
            self.on_report(name, f"missed a durable event before {params['event']['seq']}")
            self._chore(self.watch(name))
        elif report:
            self.on_report(name, report)

    # ---- what a person does

    async def prompt(self, session: str, text: str, prompt_id: str) -> Object:
        """Sends a prompt; the id makes it safe to repeat after a cut."""
        return await self.again("session.prompt", {"sessionId": session, "promptId": prompt_id,
                                                   "content": [{"type": "text", "text": text}]})

    async def approve(self, card: Object, outcome: str = "allowed-once") -> bool:
        """Answers an approval/requested; whether this answer won."""
        return await self._respond("approval.respond", {
            "sessionId": card["sessionId"], "id": card["id"], "outcome": outcome, "inputHash": card["inputHash"]})

    async def answer(self, card: Object, answers: list[Object]) -> bool:
        """Answers a question/requested; whether this answer won."""
        return await self._respond("question.respond", {
            "sessionId": card["sessionId"], "id": card["id"], "answers": answers})

    async def _respond(self, method: str, params: Object) -> bool:
        try:
            return (await self.again(method, params))["accepted"]
        except CallError as error:
            if error.kind in ("approval-not-pending", "question-not-pending"):
                return False
            raise
