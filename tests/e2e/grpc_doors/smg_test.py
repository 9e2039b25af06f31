# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The SMG gateway (PyPI's smg, the real program) in front of two servers: OpenAI's API by HTTP, tokenized by the gateway, which it learns
from GetTokenizer, and sent by vLLM's engine protocol. Run by run.py."""

import concurrent.futures
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import grpc
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2_grpc

import our_server

# The gateway puts no BOS before a prompt of /v1/completions.
PROMPT = "<s>Once upon a time"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gateway:
    def __init__(self, servers, model):
        self.port = free_port()
        smg = pathlib.Path(sys.executable).parent / "smg"
        command = [sys.executable, smg, "launch", "--host=127.0.0.1", f"--port={self.port}", f"--prometheus-port={free_port()}",
                   "--prometheus-host=127.0.0.1", "--policy=cache_aware", "--disable-health-check", "--log-level=warn",
                   "--worker-urls", *[f"grpc://{server.grpc}" for server in servers]]
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT)
        if not our_server.eventually(lambda: self.serves(model)):
            self.stop()
            raise RuntimeError("the gateway does not serve: " + self.said())

    def serves(self, model):
        try:
            self.complete(model=model, prompt="x", max_tokens=1)
            return True
        except (OSError, RuntimeError):
            if self.process.poll() is not None:
                raise RuntimeError("the gateway ended: " + self.said()) from None
            return False

    def open(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return urllib.request.urlopen(request, timeout=60)

    def call(self, path, **body):
        with self.open(path, body) as response:
            return json.load(response)

    def events(self, path, **body):
        """Of a stream, without [DONE]; RuntimeError if it has an error or ends early."""
        events = []
        with self.open(path, {**body, "stream": True}) as response:
            for line in response.read().decode().splitlines():
                if line.startswith("data: "):
                    events.append(line.removeprefix("data: "))
        if not events or events.pop() != "[DONE]" or any("error" in json.loads(event) for event in events):
            raise RuntimeError(f"a broken stream: {events[-1:]}")
        return [json.loads(event) for event in events]

    def complete(self, **body):
        return self.call("/v1/completions", **{"model": "tales", "max_tokens": 20, "temperature": 0, **body})

    def stream(self, **body):
        return self.events("/v1/completions", **{"model": "tales", "max_tokens": 20, "temperature": 0, **body})

    def said(self):
        self.output.seek(0)
        return self.output.read()[-5000:]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def text_of(events):
    return "".join(event["choices"][0].get("text") or "" for event in events if event["choices"])


class CompletionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = [our_server.Server(), our_server.Server()]
        cls.gateway = Gateway(cls.servers, "tales")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.stop()
        cls.gateway.output.close()
        for server in cls.servers:
            code = server.stop()
            assert code == 0, f"exit code {code}\n" + "".join(server.log)

    def test_the_same_text_as_in_our_own_api(self):
        for sampling in ({"temperature": 0}, {"temperature": 1, "top_p": 0.9, "seed": 7}):
            with self.subTest(sampling):
                flags = {"max_tokens": 20, "top_p": 1, "repetition_penalty": 1, "seed": 1, **sampling}
                _, expected, last = self.servers[0].generate("Once upon a time", **flags)
                body = {"prompt": PROMPT, "repetition_penalty": 1, "top_p": 1, "seed": 1, **sampling}
                whole = self.gateway.complete(**body)
                self.assertEqual(whole["choices"][0]["text"], expected)
                self.assertEqual(whole["usage"]["prompt_tokens"], last["usage"]["prompt_tokens"])
                self.assertEqual(text_of(self.gateway.stream(**body)), expected)

    def test_the_checkpoints_defaults_are_applied(self):
        body = {"model": "tales", "prompt": PROMPT, "max_tokens": 20, "seed": 3}
        _, expected, _ = self.servers[0].generate("Once upon a time", max_tokens=20, seed=3)
        self.assertEqual(self.gateway.call("/v1/completions", **body)["choices"][0]["text"], expected)

    def test_stop_and_usage(self):
        whole = self.gateway.complete(prompt=PROMPT)["choices"][0]["text"]
        word = whole.split()[4]
        stopped = self.gateway.complete(prompt=PROMPT, stop=[word])
        self.assertEqual(stopped["choices"][0]["finish_reason"], "stop")
        self.assertEqual(stopped["choices"][0]["text"], whole[:whole.index(word)])
        usage = self.gateway.stream(prompt=PROMPT, stream_options={"include_usage": True})[-1]["usage"]
        self.assertEqual((usage["prompt_tokens"], usage["completion_tokens"]), (5, 20))

    def test_errors_keep_their_meaning(self):
        with self.assertRaises(urllib.error.HTTPError) as error:
            self.gateway.complete(prompt=PROMPT, n=65)
        self.assertEqual(error.exception.code, 400)
        self.assertIn("n = 65: at most 64", error.exception.read().decode())

    def test_what_begins_alike_goes_to_one_server(self):
        prompts = ["<s>" + " ".join(f"The {word} number {i} went into the forest." for i in range(20)) for word in ("wolf", "queen", "miller", "fox")]
        for turn in range(4):
            for prompt in prompts:
                usage = self.gateway.complete(prompt=f"{prompt} It was day {turn}", max_tokens=2)["usage"]
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
                if turn > 0:  # the server that has the prefix computes only what follows it
                    self.assertGreater(cached, 150)


class KilledServerTest(unittest.TestCase):
    # Streams that the server had begun end with it; all else goes on.
    def test_requests_go_on_when_a_server_is_killed(self):
        servers = [our_server.Server(), our_server.Server()]
        gateway = Gateway(servers, "tales")
        killed, done = threading.Event(), threading.Event()

        def traffic(client):
            failures = {"whole": 0, "stream begun after": 0, "stream cut": 0}
            after = count = 0
            while not done.is_set():
                count += 1
                streamed, late = client % 2 == 0, killed.is_set()
                try:
                    send = gateway.stream if streamed else gateway.complete
                    send(prompt=f"<s>Tale {count} of {client}", max_tokens=30)
                    after += late
                except (OSError, RuntimeError):
                    failures["whole" if not streamed else "stream begun after" if late else "stream cut"] += 1
            return after, failures

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            clients = [pool.submit(traffic, client) for client in range(6)]
            self.assertTrue(our_server.eventually(lambda: all(any("request_finished" in line for line in server.log) for server in servers)))
            servers[0].kill()
            killed.set()
            before = sum("request_finished" in line for line in servers[1].log)
            self.assertTrue(our_server.eventually(lambda: sum("request_finished" in line for line in servers[1].log) >= before + 60))
            done.set()
            results = [client.result() for client in clients]
        gateway.stop()
        gateway.output.close()
        self.assertEqual(servers[1].stop(), 0)
        for after, failures in results:
            self.assertGreater(after, 0)
            self.assertEqual((failures["whole"], failures["stream begun after"]), (0, 0))
            self.assertLessEqual(failures["stream cut"], 1)


class ChatTest(unittest.TestCase):
    """The folder is gone before the gateway starts, so that template and tokenizer come from GetTokenizer."""

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            our_server.make_chat_model(folder)
            cls.server = our_server.Server(folder)
            with grpc.insecure_channel(cls.server.grpc) as channel:
                list(vllm_engine_pb2_grpc.VllmEngineStub(channel).GetTokenizer(common_pb2.GetTokenizerRequest(), timeout=60))
            cls.model = pathlib.Path(folder).name
        cls.gateway = Gateway([cls.server], cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.stop()
        cls.gateway.output.close()
        cls.server.stop()

    def chat(self, **body):
        return {"model": self.model, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 20, **body}

    def test_chat(self):
        whole = self.gateway.call("/v1/chat/completions", **self.chat())["choices"][0]
        self.assertEqual(whole["finish_reason"], "stop")
        self.assertIn("b", whole["message"]["content"])
        said = "".join(event["choices"][0]["delta"].get("content") or "" for event in self.gateway.events("/v1/chat/completions", **self.chat())
                       if event["choices"])
        self.assertEqual(said, whole["message"]["content"])


if __name__ == "__main__":
    unittest.main()
