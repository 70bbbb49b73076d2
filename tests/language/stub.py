"""A server that speaks OpenAI's chat protocol and answers equations, with the faults that a test asks for."""

import json
import re
import threading
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def solve(prompt, before=0):
    """Value of the asked name, from the prompt alone."""
    known = dict(re.findall(r"^(\w+) = (\w+)$", prompt, re.MULTILINE))
    value = re.search(r"value of (\w+)\?", prompt)[1]
    while value in known:
        value = known[value]
    return value


class Stub:
    """A server on a port of this machine, in threads of its own.

    Args:
        faults: what goes wrong with each request, from its number and the prompt: a status, "hang", "closed", "half",
            "other", or nothing.
        answer: what is said, from the prompt and how often it was asked before.
        port: by default a free one.
    """

    def __init__(self, faults=lambda number, prompt: None, answer=solve, port=0):
        self.faults, self.answer, self.requests, self.asked = faults, answer, [], Counter()
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def _handler(stub):  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prompt = body["messages"][-1]["content"]
                with stub.lock:
                    number = len(stub.requests)
                    stub.requests.append(body)
                    fault = stub.faults(number, prompt)
                    text = None if fault else stub.answer(prompt, stub.asked[prompt])
                    stub.asked[prompt] += not fault
                if fault == "hang":
                    stub.ended.wait(30)
                if fault in ("hang", "closed"):
                    self.close_connection = True
                elif isinstance(fault, int):
                    words = "maximum context length is 7 tokens" if fault == 400 else f"planted {fault}"
                    code = "context_length_exceeded" if fault == 400 else "planted"
                    self.send(fault, {"error": {"message": words, "type": "planted", "code": code}})
                elif fault == "other":
                    self.send(200, {"hello": "world"})
                else:
                    message = {"role": "assistant", "content": text or ""}
                    choice = {"index": 0, "finish_reason": "stop", "message": message}
                    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
                    self.send(200, {**whole, "choices": [choice], "usage": usage}, fault == "half")

            def send(self, status, value, half=False):
                content = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")  # Inspect leaves open ones to the garbage collector
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if half else content)

            def finish(self):
                with suppress(OSError, ValueError):
                    super().finish()

        return Handler
