"""The fold of spec/fold.md: frames of a session in, its view out. No I/O but the schemas."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Callable

Json = Any
Object = dict[str, Any]

SCHEMA = Path(__file__).resolve().parents[2] / "schema"
DEFS: Object = json.loads((SCHEMA / "defs.json").read_text("utf-8"))["$defs"]
KEPT_PROGRESS = 65536
LARGEST = 2**53 - 1
ITEM_HAS = {"tool": "tool", "agent": "agent", "approval": "decision", "question": "decision"}
REACHED_BY_ITSELF = {"user", "steering", "context", "assistant"}


def _payloads() -> dict[str, Object]:
    """The schema of the data of each event type."""
    found = {}
    for path in (SCHEMA / "events").glob("*.json"):
        properties = json.loads(path.read_text("utf-8"))["properties"]
        found[properties["type"]["const"]] = properties["data"]
    return found


PAYLOADS = _payloads()


class Malformed(Exception):
    """A frame or an event that is not what the schemas say."""


# ---- values (section 1)


def resolve(schema: Object) -> Object:
    """Follows $ref into defs.json."""
    while "$ref" in schema:
        schema = DEFS[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def whole(text: str) -> str:
    """Halves of surrogate pairs become U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def scrub(value: Json) -> Json:
    """The value with all of its strings whole."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list):
        return [scrub(v) for v in value]
    if isinstance(value, dict):
        return {whole(k): scrub(v) for k, v in value.items()}
    return value


def is_integer(value: Json) -> bool:
    """An integer from 0 to 2^53-1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value == value // 1 and 0 <= value <= LARGEST


def is_time(text: str) -> bool:
    """Whether a text is a time of RFC 3339."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def check(value: Json, schema: Object, where: str = "") -> None:
    """Raises Malformed where a member has another type than its schema's; null is absent."""
    schema = resolve(schema)
    if value is None:
        return
    if "anyOf" in schema and "properties" not in schema:
        schema = resolve(schema["anyOf"][0])
    kind = schema.get("type")
    right = {"string": isinstance(value, str), "boolean": isinstance(value, bool),
             "integer": is_integer(value), "array": isinstance(value, list),
             "object": isinstance(value, dict), None: True}[kind]
    if not right:
        raise Malformed(f"{where or 'it'} is not of type {kind}")
    if kind == "array":
        for i, element in enumerate(value):
            check(element, schema.get("items", {}), f"{where}[{i}]")
    elif schema.get("format") == "date-time" and not is_time(value):
        raise Malformed(f"{where or 'it'} is not a time")
    elif kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, member in value.items():
            if name in known:
                check(member, known[name], f"{where}.{name}")
            elif not known and isinstance(others, dict):
                check(member, others, f"{where}.{name}")


def known(value: Object, schema: Object) -> Object:
    """The members of an object that its schema names."""
    schema = resolve(schema)
    if "anyOf" in schema:
        schema = resolve(schema["anyOf"][0])
    return pick(value, *schema["properties"])


def copy(value: Json, schema: Object) -> Json:
    """The value as a view holds it: known members only, empty ones left out unless required."""
    schema = resolve(schema)
    kind = schema.get("type")
    if kind is None:
        return value
    if kind == "array":
        return [copy(v, schema["items"]) for v in value or []]
    if kind == "object" and "properties" in schema:
        return copy_object(value or {}, schema)
    if kind == "object":
        others = schema.get("additionalProperties")
        return {k: copy(v, others if isinstance(others, dict) else {}) for k, v in (value or {}).items()}
    if value is None:
        return {"string": "", "integer": 0, "boolean": False}[kind]
    return int(value) if kind == "integer" else value


def copy_object(value: Object, schema: Object) -> Object:
    """The members of an object that its schema names."""
    result = {}
    required = schema.get("required", [])
    for name, member in schema["properties"].items():
        if name in value or name in required:
            copied = copy(value.get(name), member)
            if name in required or keeps(value.get(name), copied, member):
                result[name] = copied
    if schema is DEFS["ContentBlock"] and value.get("type") == "text":
        result["text"] = value.get("text") or ""
    return result


def keeps(value: Json, copied: Json, schema: Object) -> bool:
    """Whether a member that is not required is kept."""
    schema = resolve(schema)
    if "type" not in schema:
        return True
    if "properties" in schema:
        return value is not None
    return bool(copied)


def shaped(name: str, value: Object) -> Object:
    """A value as the named schema has it."""
    return copy(value, DEFS[name])


def pick(source: Object, *names: str) -> Object:
    """Those of the named members that are there."""
    return {n: source[n] for n in names if n in source}


def tail(text: str) -> str:
    """The last 64 KiB of a text, from a whole character on."""
    data = text.encode("utf-8")
    if len(data) <= KEPT_PROGRESS:
        return text
    return data[-KEPT_PROGRESS:].decode("utf-8", "ignore")


def size(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8"))


def append_chunks(block: Object, start: int, to: int, text: str, keep: Callable[[str], str] = str) -> str:
    """The rule of chunk ranges: 'had', 'appended' or 'missed'."""
    if to <= block["to"]:
        return "had"
    if start != block["to"]:
        return "missed"
    block["text"] = keep(block["text"] + text)
    block["to"] = to
    return "appended"


def new_view() -> Object:
    """A view before any frame."""
    return shaped("View", {"status": "idle"})


def read_view(value: Json) -> Object:
    """A view from JSON: a base, or what session.get gave. Malformed, if it is none."""
    if not isinstance(value, dict):
        raise Malformed("a view is an object")
    check(value, DEFS["View"], "view")
    view = shaped("View", scrub(value))
    for item in view["items"]:
        has = ITEM_HAS.get(item["kind"])
        if has and has not in item:
            raise Malformed(f"an item of kind {item['kind']} without {has}")
    turn = view.get("turnId")
    if turn and (not view["turns"] or view["turns"][-1]["turnId"] != turn):
        raise Malformed("the open turn is not the last one")
    return view


def put_row(rows: list[Object], key: str, row: Object) -> None:
    """Replaces the row with this key in its place, or adds it."""
    for i, old in enumerate(rows):
        if old[key] == row[key]:
            rows[i] = row
            return
    rows.append(row)


def find_row(rows: list[Object], key: str, value: Json) -> Object | None:
    """The row with this key."""
    return next((r for r in rows if r[key] == value), None)


class Fold:
    """The view of one session, and what frames do to it."""

    def __init__(self, view: Json = None) -> None:
        """A new view, or one that was read from JSON."""
        self._set(new_view() if view is None else read_view(view))
        self.in_parts = False  # a session/live with more came, its last part did not

    def _set(self, view: Object) -> None:
        """Takes over a whole view."""
        self.v = view
        self.in_parts = False
        live = view.get("live")
        of_open = live is not None and live["turnId"] == view.get("turnId")
        self._closed = set(view.get("closedBlocks", [])) if of_open else set()
        if live is None and view.get("turnId"):
            self._fresh(view["turnId"])

    def view(self) -> Object:
        """The view as JSON."""
        result = {n: m for n, m in self.v.items() if n != "surface"}
        result["surface"] = self._surface()
        return json.loads(json.dumps(result))

    def durable(self) -> Object:
        """Section 13: what the log alone folds to, as session.get gives it."""
        view = self.view()
        for name in ("live", "gaps", "lagging", "epoch", "subscribed", "partialBase"):
            view.pop(name, None)
        view["pending"] = [{n: m for n, m in r.items() if n != "card"} for r in view["pending"] if r.get("seq")]
        view["status"] = "requires-action" if view["pending"] else "running" if view.get("turnId") else "idle"
        return view

    def apply(self, method: str, params: Object) -> str | None:
        """Folds a frame; tells "missed" (a durable event) or "malformed: why"."""
        try:
            return self._frame(method, scrub(params))
        except Malformed as error:
            return f"malformed: {error}"

    # ---- frames (sections 3, 4)

    def _frame(self, method: str, params: Object) -> str | None:
        known = {"session/subscribed": ("SessionSubscribed", self._subscribed),
                 "session/base": ("SessionBase", self._base),
                 "session/live": ("SessionLive", self._live),
                 "host/session-status": ("SessionStatus", self._says),
                 "approval/requested": ("ApprovalRequested", lambda p: self._requested("approval", p)),
                 "question/requested": ("QuestionRequested", lambda p: self._requested("question", p)),
                 "approval/resolved": ("ApprovalResolved", self._resolved),
                 "question/resolved": ("QuestionResolved", self._resolved)}
        if method == "session/event":
            return self._event(params.get("event"))
        if method == "session/lagging":
            self.v["lagging"] = True
        elif method == "host/subscribed":
            self._take_cards()
            self._work_out()
        elif method in known:
            name, do = known[method]
            check(params, DEFS[name])
            do(params)
        return None

    def _put(self, **members: Json) -> None:
        """Sets members of the view, or leaves them out when empty."""
        schema = DEFS["View"]
        for name, value in members.items():
            copied = copy(value, schema["properties"][name])
            if name in schema["required"] or keeps(value, copied, schema["properties"][name]):
                self.v[name] = copied
            else:
                self.v.pop(name, None)

    def _subscribed(self, params: Object) -> None:
        base = params.get("base")
        epoch = params.get("epoch") or ""
        if base is not None:
            self._set(read_view(base))
        elif not params.get("since") and self.v.get("epoch") and self.v["epoch"] != epoch:
            self._set(new_view())
        self.in_parts = False
        self.v.pop("partialBase", None)
        self._put(epoch=epoch, subscribed=True)
        self._take_cards()
        self._says(params)
        if base is None and params.get("baseParts"):
            self._put(partialBase={"part": 0, "parts": params["baseParts"], "text": ""})

    def _says(self, params: Object) -> None:
        self.v["status"] = params.get("state") or ""

    def _base(self, params: Object) -> None:
        part = self.v.pop("partialBase", None)
        number = params.get("part") or 0
        if part is None or number != part["part"] or (params.get("parts") or 0) != part["parts"]:
            raise Malformed("a part of a base that is not the next")
        part["text"] += params.get("text") or ""
        part["part"] += 1
        if part["part"] < part["parts"]:
            self.v["partialBase"] = part
            return
        try:
            base = read_view(json.loads(part["text"]))
        except ValueError as error:
            raise Malformed(f"a base that does not parse: {error}") from error
        kept = pick(self.v, "epoch", "subscribed", "status")
        self._set(base)
        self._take_cards()
        self._put(**{n: kept.get(n) for n in ("epoch", "subscribed", "status")})

    # ---- events (section 5)

    def _event(self, event: Json) -> str | None:
        if not isinstance(event, dict) or not event.get("type") or not isinstance(event.get("data"), dict):
            raise Malformed("an event without type or data")
        check(pick(event, "type", "seq", "after", "ts", "turnId", "by", "traceId"), DEFS["Event"], "event")
        kind, data, seq = event["type"], event["data"], event.get("seq") or 0
        if not seq:
            if kind in ("assistant/delta", "reasoning/delta", "tool/progress"):
                check(data, PAYLOADS[kind], kind)
                self._delta(kind, event.get("turnId") or "", data)
            return None
        before = self.v["seq"]
        if seq <= before:
            return None
        self.v["seq"] = int(seq)
        if kind in PAYLOADS:
            check(data, PAYLOADS[kind], kind)
            self._durable(kind, event, known(data, PAYLOADS[kind]))
        return "missed" if before and seq != before + 1 else None

    def _durable(self, kind: str, event: Object, data: Object) -> None:
        joins = ("turn/end", "assistant/message", "assistant/retracted", "reasoning/message",
                 "tool/call", "tool/result")
        if kind in joins and event.get("turnId") and not self.v.get("turnId") and not self.v["turns"]:
            self._turn_start({**event, "by": None}, {})
        do = getattr(self, "_" + kind.replace("/", "_"), None)
        if do:
            do(event, data)

    def _item(self, kind: str, event: Object, **members: Json) -> Object:
        """An item as an event makes it."""
        return shaped("Item", {"kind": kind, **pick(event, "seq", "ts", "turnId", "by"), **members})

    def _add(self, kind: str, event: Object, **members: Json) -> None:
        self.v["items"].append(self._item(kind, event, **members))

    # ---- session, queue and the rest (section 6)

    def _session_created(self, event: Object, data: Object) -> None:
        if event["seq"] != 1:
            return
        names = ("agent", "cwd", "title", "origin", "parentSessionId", "rootSessionId", "depth", "callId",
                 "forkedFrom", "policy", "budget", "labels")
        self._put(createdAt=event.get("ts"), **{n: data.get(n) for n in names}, **pick(data, "config"))

    def _session_resumed(self, event: Object, data: Object) -> None:
        self._put(closed=False)

    def _session_closed(self, event: Object, data: Object) -> None:
        self._put(closed=True)

    def _session_renamed(self, event: Object, data: Object) -> None:
        self._put(title=data.get("title"))

    def _session_configured(self, event: Object, data: Object) -> None:
        self._put(**{n: data[n] for n in ("policy", "budget", "labels") if data.get(n) is not None})
        if data.get("options"):
            self._put(options={**self.v.get("options", {}), **data["options"]})

    def _session_compacted(self, event: Object, data: Object) -> None:
        self._add("compaction", event, content=data.get("content"), upTo=data.get("upTo"))
        self.v["surface"] = shaped("Surface", {"summary": data.get("content"), "upTo": data.get("upTo")})

    def _leave_queue(self, data: Object) -> None:
        key = data.get("promptId") or ""
        self.v["queue"] = [r for r in self.v["queue"] if r["promptId"] != key]

    def _prompt_queued(self, event: Object, data: Object) -> None:
        row = {**pick(data, "promptId", "mode", "content"), **pick(event, "turnId", "by"), "queuedAt": event.get("ts")}
        put_row(self.v["queue"], "promptId", shaped("QueuedPrompt", row))

    def _prompt_dequeued(self, event: Object, data: Object) -> None:
        self._leave_queue(data)

    def _input(self, kind: str, event: Object, data: Object) -> None:
        self._leave_queue(data)
        self._add(kind, event, **pick(data, "promptId", "content"))

    def _user_message(self, event: Object, data: Object) -> None:
        self._input("user", event, data)

    def _steering_message(self, event: Object, data: Object) -> None:
        self._input("steering", event, data)

    def _context_message(self, event: Object, data: Object) -> None:
        self._input("context", event, data)

    def _prompt_blocked(self, event: Object, data: Object) -> None:
        self._leave_queue(data)
        self._add("blocked", event, promptId=data.get("promptId"), message=data.get("reason"))

    def _todo_write(self, event: Object, data: Object) -> None:
        self._put(todos=data.get("todos"))

    def _task_started(self, event: Object, data: Object) -> None:
        row = {**pick(data, "taskId", "kind", "label"), "startedAt": event.get("ts")}
        put_row(self.v["tasks"], "taskId", shaped("Task", row))

    def _task_completed(self, event: Object, data: Object) -> None:
        key = data.get("taskId") or ""
        row = {**(find_row(self.v["tasks"], "taskId", key) or {"taskId": key}), "status": data.get("status"),
               "detail": data.get("detail"), "finishedAt": event.get("ts")}
        put_row(self.v["tasks"], "taskId", shaped("Task", row))

    def _agent_spawned(self, event: Object, data: Object) -> None:
        said = pick(data, "childSessionId", "callId", "agent", "title")
        self._add("agent", event, agent=said)
        put_row(self.v["children"], "sessionId", shaped("Child", {**said, "sessionId": data.get("childSessionId")}))

    def _agent_completed(self, event: Object, data: Object) -> None:
        key = data.get("childSessionId") or ""
        cards = [i["agent"] for i in self.v["items"] if i["kind"] == "agent"]
        card = next((c for c in reversed(cards) if c["childSessionId"] == key), None)
        row = find_row(self.v["children"], "sessionId", key)
        made = pick(data, "childSessionId", "callId")
        if card is None:
            self._add("agent", event, agent=made)
            card = self.v["items"][-1]["agent"]
        card_now = {**card, "status": data.get("status"), "endSeq": event["seq"], "result": data.get("result")}
        replace(card, shaped("AgentCard", card_now))
        row = row or {**made, "sessionId": key}
        put_row(self.v["children"], "sessionId", shaped("Child", {**row, "status": data.get("status")}))

    def _model_start(self, event: Object, data: Object) -> None:
        self._put(model=data.get("model"))

    def _model_switched(self, event: Object, data: Object) -> None:
        self._put(model=data.get("to"))

    def _usage_updated(self, event: Object, data: Object) -> None:
        self._put(usage=data.get("usage"))

    def _command_available(self, event: Object, data: Object) -> None:
        self._put(commands=data.get("commands"))

    def _error(self, event: Object, data: Object) -> None:
        self._add("error", event, **pick(data, "code", "message", "retryable"))

    # ---- turns and messages (section 7)

    def _stop_tools(self) -> None:
        for item in self.v["items"]:
            if item["kind"] == "tool" and item["tool"].get("running"):
                self._stop_call(item["tool"]["callId"])
        self.v.pop("closedBlocks", None)

    def _forget_live(self) -> None:
        self.v.pop("live", None)
        self._closed = set()

    def _turn_start(self, event: Object, data: Object) -> None:
        turn = event.get("turnId") or ""
        self._leave_queue(data)
        self._stop_tools()
        if not turn or self.v.get("turnId") == turn:
            self._forget_live()
        self._put(turnId=turn)
        row = {"turnId": turn, **pick(data, "trigger", "promptId"),
               "startedAt": event.get("ts"), "startSeq": event["seq"]}
        self.v["turns"].append(shaped("Turn", row))
        if turn and self.v.get("live", {}).get("turnId") != turn:
            self._fresh(turn)
        self._work_out()

    def _turn_end(self, event: Object, data: Object) -> None:
        named, turn = event.get("turnId"), self.v.get("turnId")
        if not turn or (named and named != turn):
            if named and self.v.get("live", {}).get("turnId") == named:
                self._forget_live()
                if turn:
                    self._fresh(turn)
                self._work_out()
            return
        row = {**self.v["turns"][-1], **pick(data, "reason", "message", "usage"),
               "endedAt": event.get("ts"), "endSeq": event["seq"]}
        self.v["turns"][-1] = shaped("Turn", row)
        self._stop_tools()
        self._put(turnId="")
        self._forget_live()
        self._work_out()

    def _assistant_message(self, event: Object, data: Object) -> None:
        self._message("assistant", event, data)

    def _reasoning_message(self, event: Object, data: Object) -> None:
        withheld = not data.get("content") and data.get("withheld") is True
        self._message("reasoning", event, {**data, "withheld": withheld})

    def _assistant_retracted(self, event: Object, data: Object) -> None:
        self._supersede(event.get("turnId"), data.get("blocks") or [])

    def _message(self, kind: str, event: Object, data: Object) -> None:
        members = pick(data, "content", "blocks", "partial", "usage", "withheld")
        if kind == "assistant":
            members.pop("withheld", None)
        voided = self._supersede(event.get("turnId"), data.get("blocks") or [])
        item = self._item(kind, event, **members)
        if voided:
            self.v["items"][voided[0]] = item
        else:
            self.v["items"].append(item)

    def _supersede(self, turn: str | None, blocks: list[int]) -> list[int]:
        """Closes and releases blocks; the places of the items that are void by it."""
        blocks = [b or 0 for b in blocks]
        live = self.v.get("live")
        if turn and live and live["turnId"] == turn:
            self._closed.update(blocks)
            self._put_live_blocks([b for b in live.get("blocks", []) if b["block"] not in blocks])
        if not turn or turn != self.v.get("turnId"):
            return []
        self._put(closedBlocks=sorted({*self.v.get("closedBlocks", []), *blocks}))
        released = [self._release(turn, block) for block in blocks]
        return [place for place in released if place is not None]

    def _release(self, turn: str, block: int) -> int | None:
        """Takes a block from the message that holds it; the item's place, if it is void now."""
        start = self.v["turns"][-1].get("startSeq", 0)
        for place, item in enumerate(self.v["items"]):
            held = item.get("blocks", [])
            if item["kind"] not in ("assistant", "reasoning") or block not in held:
                continue
            if item.get("turnId") != turn or item["seq"] < start:
                continue
            content = item.get("content", [])
            rest = [i for i, b in enumerate(held) if b != block] if len(content) == len(held) else []
            if rest:
                item["blocks"], item["content"] = [held[i] for i in rest], [content[i] for i in rest]
                return None
            self.v["items"][place] = {**pick(item, "kind", "seq", "ts", "turnId"), "void": True}
            return place
        return None

    # ---- tools (section 8)

    def _cards(self, call: str) -> list[Object]:
        return [i["tool"] for i in self.v["items"] if i["kind"] == "tool" and i["tool"]["callId"] == call]

    def _stop_call(self, call: str) -> None:
        for card in self._cards(call):
            card.pop("running", None)
        live = self.v.get("live")
        if live:
            self._put_live_tools([t for t in live.get("tools", []) if t["callId"] != call])

    def _tool_call(self, event: Object, data: Object) -> None:
        call = data.get("callId") or ""
        self._stop_call(call)
        members = pick(data, "callId", "name", "kind", "title", "input", "locations", "truncated")
        self._add("tool", event, tool={**members, "running": True})
        live = self.v.get("live")
        if live and (not event.get("turnId") or event["turnId"] == live["turnId"]):
            self._put_live_tools([*live.get("tools", []), {"callId": call, "text": "", "to": 0}])

    def _tool_result(self, event: Object, data: Object) -> None:
        call = data.get("callId") or ""
        self._stop_call(call)
        if not self._cards(call):
            self._add("tool", event, tool={"callId": call})
        card = self._cards(call)[-1]
        names = ("content", "isError", "errorCode", "durationMs", "details")
        rest = {n: m for n, m in card.items() if n not in names}
        replace(card, shaped("ToolCard", {**rest, "resultSeq": event["seq"], **pick(data, *names)}))

    # ---- approvals and questions (section 9)

    def _put_pending(self, row: Object) -> None:
        put_row(self.v["pending"], "id", shaped("ViewPending", row))
        self.v["pending"].sort(key=lambda r: (r.get("askedAt", ""), r["id"]))

    def _take_cards(self, only: str | None = None) -> None:
        for row in self.v["pending"]:
            if only is None or row["id"] == only:
                row.pop("card", None)
        self.v["pending"] = [r for r in self.v["pending"] if r.get("card") or r.get("seq")]

    def _requested(self, kind: str, params: Object) -> None:
        key = params.get("id") or ""
        row = find_row(self.v["pending"], "id", key)
        if row and row.get("seq"):
            row["card"] = True
        else:
            names = ["turnId", "callId", "askedAt", "expiresAt"]
            approval = ["tool", "input", "inputHash", "truncated", "reason", "options"]
            names += ["questions"] if kind == "question" else approval
            self._put_pending({"id": key, "kind": kind, "card": True, **pick(params, *names)})
        self._work_out()

    def _resolved(self, params: Object) -> None:
        self._take_cards(params.get("id") or "")
        self._work_out()

    def _asked(self, kind: str, event: Object, data: Object, *names: str) -> None:
        key = data.get("id") or ""
        old = find_row(self.v["pending"], "id", key) or {}
        self._put_pending({"id": key, "kind": kind, "seq": event["seq"], "card": old.get("card"), **pick(data, *names),
                           **pick(event, "turnId"), "askedAt": event.get("ts")})
        decision = shaped("Decision", {"id": key, "askedSeq": event["seq"], "questions": data.get("questions")})
        cards = self._cards(data.get("callId") or "") if kind == "approval" and data.get("callId") else []
        if cards:
            cards[-1].setdefault("decisions", []).append(decision)
        else:
            self._add(kind, event, decision=decision)
        self._work_out()

    def _decided(self, kind: str, event: Object, data: Object) -> None:
        key = data.get("id") or ""
        self.v["pending"] = [r for r in self.v["pending"] if r["id"] != key]
        said = {"seq": event["seq"], "ts": event.get("ts"),
                **pick(data, "outcome", "origin", "by", "feedback", "grant", "answers")}
        begun = [d for d in self._decisions() if d["id"] == key and not d.get("seq")]
        if begun:
            last = max(begun, key=lambda d: d.get("askedSeq", 0))
            replace(last, shaped("Decision", {**last, **said}))
        else:
            self._add(kind, event, decision={"id": key, **said})
        self._work_out()

    def _decisions(self) -> list[Object]:
        found = []
        for item in self.v["items"]:
            found += [item["decision"]] if "decision" in item else item.get("tool", {}).get("decisions", [])
        return found

    def _approval_asked(self, event: Object, data: Object) -> None:
        self._asked("approval", event, {n: m for n, m in data.items() if n != "questions"}, "callId", "tool", "input",
                    "inputHash", "truncated", "reason", "options", "expiresAt")

    def _question_asked(self, event: Object, data: Object) -> None:
        self._asked("question", event, data, "questions", "expiresAt")

    def _approval_decided(self, event: Object, data: Object) -> None:
        self._decided("approval", event, {n: m for n, m in data.items() if n != "answers"})

    def _question_decided(self, event: Object, data: Object) -> None:
        self._decided("question", event, {n: m for n, m in data.items() if n not in ("feedback", "grant")})

    # ---- status (section 10)

    def _work_out(self) -> None:
        by = "card" if self.v.get("subscribed") else "seq"
        asks = any(r.get(by) for r in self.v["pending"])
        runs = self.v.get("turnId") or "live" in self.v
        self.v["status"] = "requires-action" if asks else "running" if runs else "idle"

    # ---- what is live (section 11)

    def _put_live_blocks(self, blocks: list[Object]) -> None:
        self._put_live("blocks", sorted(blocks, key=lambda b: b["block"]))

    def _put_live_tools(self, tools: list[Object]) -> None:
        self._put_live("tools", tools)

    def _put_live(self, name: str, rows: list[Object]) -> None:
        if rows:
            self.v["live"][name] = rows
        else:
            self.v["live"].pop(name, None)

    def _fresh(self, turn: str) -> None:
        """Makes live this turn without text, with its running tools."""
        closed = set(self.v.get("closedBlocks", [])) if turn == self.v.get("turnId") else set()
        if self.v.get("live", {}).get("turnId") == turn:
            closed |= self._closed
        self._closed = closed
        self.v["live"] = {"turnId": turn}
        running = [i["tool"]["callId"] for i in self.v["items"]
                   if i["kind"] == "tool" and i["tool"].get("running") and i.get("turnId") in (None, turn)]
        self._put_live_tools([{"callId": c, "text": "", "to": 0} for c in running])

    def _delta(self, kind: str, turn: str, data: Object) -> None:
        live = self.v.get("live")
        if live is None or (turn and turn != live["turnId"]):
            is_over = turn != self.v.get("turnId") and find_row(self.v["turns"], "turnId", turn) is not None
            if turn and not is_over:
                self.v["gaps"] = True
            return
        start, to, text = data.get("from") or 0, data.get("to") or 0, data.get("text") or ""
        if kind == "tool/progress":
            tool = find_row(live.get("tools", []), "callId", data.get("callId") or "")
            done = append_chunks(tool, start, to, text, tail) if tool else "late"
        else:
            done = self._block_delta(live, kind.split("/")[0], data.get("block") or 0, start, to, text)
        if done == "missed":
            self.v["gaps"] = True

    def _block_delta(self, live: Object, kind: str, number: int, start: int, to: int, text: str) -> str:
        if number in self._closed:
            return "closed"
        block = find_row(live.get("blocks", []), "block", number)
        grown = block or {"block": number, "kind": kind, "text": "", "to": 0}
        done = append_chunks(grown, start, to, text)
        if block is None and done == "appended":
            self._put_live_blocks([*live.get("blocks", []), grown])
        return done

    def _live(self, params: Object) -> None:
        first, last = not self.in_parts, not params.get("more")
        self.in_parts = not last
        if first:
            self.v.pop("gaps", None)
        if last:
            self.v.pop("lagging", None)
        self._live_part(params.get("turn"), first)
        self._work_out()

    def _live_part(self, part: Object | None, first: bool) -> None:
        turn = self.v.get("turnId")
        if part is None:
            if turn:
                self._fresh(turn)
            else:
                self._forget_live()
            return
        named = part.get("turnId") or ""
        if named != turn and find_row(self.v["turns"], "turnId", named):
            return
        if first or self.v.get("live", {}).get("turnId") != named:
            self._fresh(named)
        for piece in part.get("blocks") or []:
            self._block_piece(self.v["live"], piece or {})
        for piece in part.get("tools") or []:
            self._tool_piece(self.v["live"], piece or {})

    def _block_piece(self, live: Object, piece: Object) -> None:
        number = piece.get("block") or 0
        if number in self._closed:
            return
        blocks = live.get("blocks", [])
        block = find_row(blocks, "block", number)
        if block is None or not piece.get("offset"):
            block = {"block": number, "kind": piece.get("kind") or "", "text": "", "to": 0}
            self._put_live_blocks([b for b in blocks if b["block"] != number] + [block])
        self._add_piece(block, piece, str)

    def _tool_piece(self, live: Object, piece: Object) -> None:
        call = piece.get("callId") or ""
        tool = find_row(live.get("tools", []), "callId", call)
        if tool is None:
            if self._cards(call):
                return
            tool = {"callId": call, "text": "", "to": 0}
            self._put_live_tools([*live.get("tools", []), tool])
        if not piece.get("offset"):
            tool.update({"text": "", "to": 0})
        self._add_piece(tool, piece, tail)

    def _add_piece(self, block: Object, piece: Object, keep: Callable[[str], str]) -> None:
        if (piece.get("offset") or 0) != size(block["text"]):
            self.v["gaps"] = True
            return
        block["text"] = keep(block["text"] + (piece.get("text") or ""))
        block["to"] = int(piece.get("to") or 0)

    # ---- the surface (section 12)

    def _surface(self) -> Object:
        surface = self.v["surface"]
        seqs = [i["seq"] for i in self.v["items"] if not i.get("void") and reached(i) > surface.get("upTo", 0)]
        return {**surface, "seqs": seqs}


def reached(item: Object) -> int:
    """The seq of the event by which an item reached the model; 0: none."""
    if item["kind"] in REACHED_BY_ITSELF:
        return item["seq"]
    if item["kind"] == "tool":
        return item["tool"].get("resultSeq", 0)
    return item["agent"].get("endSeq", 0) if item["kind"] == "agent" else 0


def replace(target: Object, source: Object) -> None:
    """Makes an object another one, in its place."""
    target.clear()
    target.update(source)
