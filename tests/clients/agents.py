"""A gateway for agents: their first prompt alone is longer than the demo model's context, so an
engine that plays the model calls the agent's own tool, then says what the tool answered."""

import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from tests.clients.trial import Target
from tests.fixtures import catalog
from tests.fixtures.gateway import Stack, running_stack
from tests.fixtures.waiting import eventually

VARIANT = "var_agent"
MODEL = "agent"
CONTEXT_TOKENS = 200_000
START_SECONDS_MAX = 60.0
SECRET = "The penstock is open."
"""What stands in the file that agents are asked to read."""
FILE = "secret.txt"
CALLS: dict[str, dict[str, Any]] = {
    "Read": {"file_path": FILE},
    "exec_command": {"cmd": f"cat {FILE}"},
    "shell": {"command": ["cat", FILE]},
}
"""Tools of agents by which a file is read, and how each is called; paths within their folder."""


def answer_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return what a model would say: a call of a tool that it was offered, then its result."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        said = SECRET if SECRET in json.dumps(last["content"]) else "There is no such file."
        return {"content": f"It says: {said}"}
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    name = next((name for name in offered if name in CALLS), None)
    if name is None or body.get("tool_choice") == "none":
        return {"content": "I have no tool to read files."}
    function = {"name": name, "arguments": json.dumps(_within(CALLS[name], body))}
    call = {"id": f"call_{time.time_ns()}", "type": "function", "function": function}
    return {"tool_calls": [{"index": 0} | call]}


def _within(arguments: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return arguments with the whole path, as agents insist on it, out of the prompt."""
    if "file_path" not in arguments:
        return arguments
    folder = json.dumps(body["messages"]).partition("folder is ")[2].partition(";")[0]
    return {"file_path": f"{folder}/{arguments['file_path']}"}


async def chat(request: web.Request) -> web.StreamResponse:
    """Answer as vLLM does, whole or in three chunks."""
    body = await request.json()
    said = answer_of(body)
    reason = "tool_calls" if "tool_calls" in said else "stop"
    prompt_tokens = 1 + len(json.dumps(body)) // 4
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 20}
    usage["total_tokens"] = prompt_tokens + 20
    head = {"id": "chatcmpl-1", "created": int(time.time()), "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "message": {"role": "assistant"} | said, "finish_reason": reason}
        whole = {"object": "chat.completion", "choices": [choice], "usage": usage}
        return web.json_response(head | whole)
    reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await reply.prepare(request)
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "content": ""}, None),
        (said, None),
        ({}, reason),
    ]
    for delta, finish in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"object": "chat.completion.chunk", "choices": [choice], "usage": usage}
        await reply.write(b"data: %b\n\n" % json.dumps(head | chunk).encode())
    last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
    await reply.write(b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(head | last).encode())
    return reply


async def count(request: web.Request) -> web.Response:
    """Count roughly."""
    return web.json_response({"count": 1 + len(await request.read()) // 4})


async def offer(stack: Stack, runner: web.AppRunner) -> None:
    """Publish the model that agents are told of, and the engine that plays it."""
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    feed, fleet = stack.control.feed, stack.control.fleet
    model = catalog.model(VARIANT, MODEL)
    context = {"context_tokens": CONTEXT_TOKENS, "output_tokens_max": CONTEXT_TOKENS // 2}
    feed.publish("model", VARIANT, msgspec.structs.replace(model, **context))
    feed.publish("price", f"price_{VARIANT}", catalog.price(VARIANT))
    feed.publish("deployment", f"dep_{VARIANT}", catalog.deployment(VARIANT))
    record = catalog.replica(f"http://127.0.0.1:{port}", 98, VARIANT)
    fleet.publish("replica", record.replica_id, record)
    pools = stack.gateway.directory.pools
    name = f"dep_{VARIANT}"
    await eventually(lambda: name in pools and pools[name].has_ready_replica)


async def serve(folder: Path, told: list[Target], is_ready: threading.Event) -> None:
    """Run the gateway until it is cancelled."""
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_post("/tokenize", count)
    runner = web.AppRunner(app)
    async with running_stack(folder) as stack:
        try:
            await offer(stack, runner)
            told.append(Target(f"{stack.url}/v1", stack.tenant.secret, MODEL, ""))
            is_ready.set()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()


@contextmanager
def agents_target() -> Iterator[Target]:
    """Run the gateway in a thread while agents are tried."""
    told: list[Target] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        task = loop.create_task(serve(Path(folder), told, is_ready))
        thread = threading.Thread(target=_run, args=(loop, task), daemon=True)
        thread.start()
        try:
            if not is_ready.wait(START_SECONDS_MAX):
                raise RuntimeError("the gateway for agents did not start")
            yield told[0]
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join(START_SECONDS_MAX)


def _run(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    finally:
        loop.close()
