"""A server that speaks OpenAI's chat protocol and answers equations, with the faults that a test asks for."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG = 30.0
"""Seconds for which a hanging server holds a connection, unless it is stopped first."""


def solve(prompt: str) -> str:
    """Value of the asked name, from the prompt alone."""
    known = dict(re.findall(r"^(\w+) = (\w+)$", prompt, re.MULTILINE))
    value = re.search(r"value of (\w+)\?", prompt)[1]
    while value in known:
        value = known[value]
    return value


class Stub:
    """A server on a port of this machine, by default a free one, in threads of its own.

    Attributes:
        faults: what goes wrong with each request, from its number and the prompt; None is nothing.
        answer: what is said, from the prompt and how often it was asked before.
        requests: bodies that came in, in order.
    """

    def __init__(
        self,
        faults: Callable[[int, str], str | None] = lambda number, prompt: None,
        answer: Callable[[str, int], str] = lambda prompt, before: solve(prompt),
        port: int = 0,
    ) -> None:
        self.faults, self.answer = faults, answer
        self.requests: list[dict] = []
        self.asked: Counter[str] = Counter()
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> "Stub":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def _handler(stub) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                with stub.lock:
                    number = len(stub.requests)
                    stub.requests.append(body)
                    fault = stub.faults(number, prompt)
                    text = None
                    if fault is None:
                        text = stub.answer(prompt, stub.asked[prompt])
                        stub.asked[prompt] += 1
                self.reply(fault, body["model"], text)

            def reply(self, fault: str | None, model: str, text: str | None) -> None:
                if fault in ("429", "500", "401"):
                    self.send(int(fault), {"error": {"message": f"planted {fault}", "type": "planted"}})
                elif fault == "hang":
                    stub.ended.wait(HANG)
                    self.close_connection = True
                elif fault == "closed":
                    self.connection.close()
                    self.close_connection = True
                elif fault == "wrong":
                    self.send_bytes(200, b'{"id": "x", "choices": [')
                elif fault == "other":
                    self.send(200, {"hello": "world"})
                else:
                    whole = json.dumps(completion(model, text or "")).encode()
                    self.send_bytes(200, whole, kept=len(whole) // 2 if fault == "half" else None)

            def send(self, status: int, value: object) -> None:
                self.send_bytes(status, json.dumps(value).encode())

            def send_bytes(self, status: int, content: bytes, kept: int | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:kept])
                if kept is not None:
                    self.connection.close()
                    self.close_connection = True

            def finish(self) -> None:
                with suppress(OSError, ValueError):  # a planted fault closed the connection
                    super().finish()

        return Handler


def completion(model: str, text: str) -> dict:
    """The answer of a server that is well."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
