# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The official openai package, sync and async, against the real server: the bundled model for completions, and a chat model
(make_chat_model.py) that answers any message with "<think>a</think>b". Run by run.py."""

import asyncio
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support import rivulet_server  # noqa: E402
from support.rivulet_server import BINARIES, SOURCE  # noqa: E402

PROMPT = "Once upon a time"


class Server(rivulet_server.Server):
    """With the clients of the package."""

    def client(self, **options):
        return openai.OpenAI(base_url=f"http://{self.http}/v1", api_key="none", max_retries=0, timeout=60, **options)

    def async_client(self):
        return openai.AsyncOpenAI(base_url=f"http://{self.http}/v1", api_key="none", max_retries=0, timeout=60)


class ServerTest(unittest.TestCase):
    @classmethod
    def start(cls, model, *flags):
        cls.server = Server(model, *flags)
        cls.client = cls.server.client()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.stop()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log)


class CompletionsTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.start(SOURCE / "models/tales")

    def complete(self, **options):
        return self.client.completions.create(**{"model": "tales", "prompt": PROMPT, "max_tokens": 20, "seed": 1, **options})

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["tales"])
        self.assertEqual(self.client.models.retrieve("tales").owned_by, "rivulet")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-5")

    def test_whole_and_streamed_are_the_same(self):
        whole = self.complete()
        self.assertEqual(whole.choices[0].finish_reason, "length")
        self.assertEqual(whole.usage.prompt_tokens, 5)
        self.assertEqual(whole.usage.completion_tokens, 20)
        self.assertEqual(whole.usage.total_tokens, 25)
        chunks = list(self.complete(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), whole.choices[0].text)
        self.assertEqual(chunks[-2].choices[0].finish_reason, "length")
        self.assertEqual(chunks[-1].usage.completion_tokens, 20)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_the_same_tokens_as_over_grpc(self):
        for sampling in ({"temperature": 0}, {"temperature": 1, "top_p": 0.9, "seed": 7, "frequency_penalty": 0.5}):
            http = self.complete(max_tokens=40, extra_body={"return_token_ids": True}, **sampling).choices[0]
            flags = [f"--{name.replace('_', '-')}={value}" for name, value in {"seed": 1, **sampling}.items()]
            said = subprocess.run([BINARIES / "rivulet", "generate", "--server", self.server.grpc, "--json", "--prompt", PROMPT,
                                   "--max-tokens=40", *flags], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout
            messages = [json.loads(line) for line in said.splitlines()]
            self.assertEqual(http.token_ids, [token for message in messages for token in message.get("token_ids", [])])
            self.assertEqual(http.text, "".join(message.get("text", "") for message in messages))

    def test_several_prompts(self):
        prompts = [PROMPT, "The dragon said", [5, 6, 7]]
        together = self.complete(prompt=prompts[:2], n=2)
        alone = [choice.text for prompt in prompts[:2] for choice in self.complete(prompt=prompt, n=2).choices]
        self.assertEqual([choice.text for choice in together.choices], alone)
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2, 3])
        texts = [""] * 2
        for chunk in self.complete(prompt=[prompts[2], prompts[2][:2]], stream=True):
            texts[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(texts, [self.complete(prompt=prompt).choices[0].text for prompt in (prompts[2], prompts[2][:2])])

    def test_echo(self):
        alone, echoed = self.complete(logprobs=2).choices[0], self.complete(logprobs=2, echo=True).choices[0]
        self.assertEqual(echoed.text, PROMPT + alone.text)
        self.assertEqual("".join(echoed.logprobs.tokens), echoed.text)
        self.assertEqual(echoed.logprobs.token_logprobs[-20:], alone.logprobs.token_logprobs)
        self.assertIsNone(echoed.logprobs.token_logprobs[0])  # BOS
        prompt = echoed.logprobs.token_logprobs[:-20]
        self.assertTrue(len(prompt) == 5 and all(value < 0 for value in prompt[1:]), prompt)
        only = self.complete(max_tokens=0, logprobs=1, echo=True).choices[0]
        self.assertEqual((only.text, only.logprobs.token_logprobs), (PROMPT, prompt))
        chunks = list(self.complete(n=2, echo=True, stream=True))
        for index in range(2):
            self.assertTrue("".join(chunk.choices[0].text for chunk in chunks if chunk.choices[0].index == index).startswith(PROMPT))

    def test_token_ids_are_prompts(self):
        text = self.complete(extra_body={"return_token_ids": True}, max_tokens=5).choices[0]
        first = self.complete(prompt=text.token_ids, max_tokens=5).choices[0].text
        self.assertEqual(self.complete(prompt=[text.token_ids], max_tokens=5).choices[0].text, first)

    def test_n_choices_do_not_depend_on_n(self):
        three = self.complete(n=3, temperature=1)
        self.assertEqual([choice.index for choice in three.choices], [0, 1, 2])
        self.assertEqual(len({choice.text for choice in three.choices}), 3)
        self.assertEqual(three.usage.completion_tokens, 60)
        self.assertEqual(self.complete(temperature=1).choices[0].text, three.choices[0].text)
        streamed = ["", "", ""]
        for chunk in self.complete(n=3, temperature=1, stream=True):
            streamed[chunk.choices[0].index] += chunk.choices[0].text
        self.assertEqual(streamed, [choice.text for choice in three.choices])

    def test_stop(self):
        text = self.complete(temperature=0, max_tokens=40).choices[0].text
        word = text.split()[6]
        stopped = self.complete(temperature=0, max_tokens=40, stop=[word, "no such text"]).choices[0]
        self.assertEqual(stopped.finish_reason, "stop")
        self.assertEqual(stopped.stop_reason, word)
        self.assertEqual(stopped.text, text[:text.index(word)])
        self.assertEqual(self.complete(temperature=0, max_tokens=40, stop=word).choices[0].text, stopped.text)

    def test_logprobs(self):
        choice = self.complete(temperature=0, logprobs=3).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        for token, logprob, top, offset in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs,
                                               choice.logprobs.text_offset):
            self.assertEqual(len(top), 3)
            self.assertLess(logprob, 0)
            self.assertTrue(choice.text.startswith(token, offset))
        self.assertIsNone(self.complete(logprobs=0).choices[0].logprobs.top_logprobs)
        self.assertIsNone(self.complete().choices[0].logprobs)

    def test_logit_bias_and_penalties_count(self):
        plain = self.complete(temperature=0, extra_body={"return_token_ids": True}).choices[0]
        biased = self.complete(temperature=0, logit_bias={str(plain.token_ids[0]): -100}, extra_body={"return_token_ids": True}).choices[0]
        self.assertNotEqual(biased.token_ids[0], plain.token_ids[0])
        self.assertNotEqual(self.complete(temperature=0, max_tokens=60, presence_penalty=2).choices[0].text,
                            self.complete(temperature=0, max_tokens=60).choices[0].text)

    def test_cached_tokens_are_counted(self):
        prompt = " ".join(["The wolf and the fox went into the forest"] * 20)
        options = {"prompt": prompt, "max_tokens": 2, "extra_body": {"cache_salt": "mine"}}
        self.assertEqual(self.complete(**options).usage.prompt_tokens_details.cached_tokens, 0)
        self.assertGreater(self.complete(**options).usage.prompt_tokens_details.cached_tokens, 100)
        other = {**options, "extra_body": {"cache_salt": "other"}}
        self.assertEqual(self.complete(**other).usage.prompt_tokens_details.cached_tokens, 0)

    def test_sessions(self):
        greedy = {"temperature": 0, "max_tokens": 10}
        raw = self.client.completions.with_raw_response
        first = raw.create(model="tales", prompt=PROMPT, extra_headers={"x-session-id": "new"}, **greedy)
        session = first.headers["x-session-id"]
        second = raw.create(model="tales", prompt=" and then", extra_headers={"x-session-id": session}, **greedy)
        self.assertEqual(second.headers["x-session-id"], session)
        usage = second.parse().usage
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, 5 + 10 - 1)
        listed = subprocess.run([BINARIES / "rivulet", "sessions", "get", "--server", self.server.grpc, session], check=True,
                                capture_output=True, text=True).stdout
        self.assertIn(session, listed)
        with self.assertRaises(openai.NotFoundError) as gone:
            raw.create(model="tales", prompt="x", extra_headers={"x-session-id": "unknown"}, **greedy)
        self.assertEqual((gone.exception.code, gone.exception.param), ("session_not_found", "x-session-id"))

    def test_structured_output(self):
        for seed in range(3):
            choice = self.complete(seed=seed, extra_body={"structured_outputs": {"choice": ["red", "blue"]}}).choices[0]
            self.assertIn(choice.text, ("red", "blue"))
            self.assertEqual(choice.finish_reason, "stop")
        schema = {"type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"], "additionalProperties": False}
        said = self.complete(max_tokens=60, extra_body={"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
        self.assertIn(json.loads(said.choices[0].text)["old"], (True, False))

    def test_a_request_id_comes_back(self):
        self.assertEqual(self.complete(extra_headers={"x-request-id": "mine"})._request_id, "mine")

    def test_errors_name_their_field(self):
        for field, options in {"temperature": {"temperature": -1}, "n": {"n": 65}, "echo": {"echo": True, "logprobs": 1, "n": 2}, "suffix": {"suffix": "x"},
                               "best_of": {"best_of": 2}, "nonsense": {"extra_body": {"nonsense": 1}}, "logprobs": {"logprobs": 21},
                               "max_tokens": {"max_tokens": "many"}, "prompt": {"prompt": ["a"] * 129}}.items():
            with self.subTest(field), self.assertRaises(openai.BadRequestError) as error:
                self.complete(**options)
            self.assertIn(field, error.exception.body["message"])
        with self.assertRaises(openai.BadRequestError) as no_template:
            self.client.responses.create(model="tales", input="hi")
        self.assertIn("no chat template", no_template.exception.body["message"])
        with self.assertRaises(openai.BadRequestError) as no_template:
            self.client.chat.completions.create(model="tales", messages=[{"role": "user", "content": "hi"}])
        self.assertIn("no chat template", no_template.exception.body["message"])
        with self.assertRaises(openai.NotFoundError) as other_model:
            self.complete(model="gpt-5")
        self.assertEqual(other_model.exception.code, "model_not_found")
        with self.assertRaises(openai.APIStatusError) as embeddings:
            self.client.embeddings.create(model="tales", input="x")
        self.assertEqual(embeddings.exception.status_code, 501)

    def test_a_client_that_leaves_ends_its_request(self):
        stream = self.complete(max_tokens=100000, stream=True, extra_body={"ignore_eos": True}, extra_headers={"x-request-id": "left"})
        next(iter(stream))
        stream.close()
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.5).completions.create(
                model="tales", prompt=PROMPT, max_tokens=100000, extra_body={"ignore_eos": True}, extra_headers={"x-request-id": "gave-up"})
        for request in ("left", "gave-up"):
            self.assertTrue(self.eventually(lambda: any(
                f"request_id={request} " in line and "CANCELLED" in line for line in self.server.log)), "".join(self.server.log))

    @staticmethod
    def eventually(done):
        for _ in range(1000):
            if done():
                return True
            threading.Event().wait(0.02)
        return False

    def test_many_at_once_with_asyncio(self):
        async def run():
            async with self.server.async_client() as client:
                async def one(seed):
                    text = ""
                    stream = await client.completions.create(model="tales", prompt=PROMPT, max_tokens=20, seed=seed, stream=True)
                    async for chunk in stream:
                        text += chunk.choices[0].text
                    return text
                texts = await asyncio.gather(*(one(seed) for seed in range(32)))
                self.assertEqual([model.id async for model in client.models.list()], ["tales"])
                return texts
        texts = asyncio.run(run())
        self.assertEqual(texts, [self.complete(seed=seed).choices[0].text for seed in range(32)])


class ChatTest(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, SOURCE / "tests/e2e/make_chat_model.py", cls.folder.name], check=True)
        cls.start(cls.folder.name)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def chat(self, *contents, **options):
        messages = [{"role": "user", "content": content} for content in contents or ["Hi"]]
        return self.client.chat.completions.create(**{"model": self.model, "messages": messages, **options})

    def test_thinking_is_told_from_the_answer(self):
        choice = self.chat().choices[0]
        self.assertEqual((choice.message.role, choice.message.content, choice.message.reasoning_content), ("assistant", "b", "a"))
        self.assertEqual(choice.finish_reason, "stop")
        thinking = content = ""
        chunks = list(self.chat(stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        for chunk in chunks:
            thinking += getattr(chunk.choices[0].delta, "reasoning_content", None) or ""
            content += chunk.choices[0].delta.content or ""
        self.assertEqual((thinking, content), ("a", "b"))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")

    def test_the_openai_helper_streams(self):
        with self.client.chat.completions.stream(model=self.model, messages=[{"role": "user", "content": "Hi"}]) as stream:
            for _ in stream:
                pass
            self.assertEqual(stream.get_final_completion().choices[0].message.content, "b")

    def test_logprobs(self):
        tokens = self.chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual([token.token for token in tokens[:4]], ["<think>", "a", "</think>", "b"])
        self.assertEqual([len(token.top_logprobs) for token in tokens], [2] * len(tokens))
        self.assertEqual(bytes(tokens[1].bytes), b"a")
        chunk = next(iter(self.chat(logprobs=True, stream=True)))
        self.assertEqual(chunk.choices[0].logprobs.content[0].top_logprobs, [])

    def test_conversations_parts_and_tools(self):
        reply = self.client.chat.completions.create(
            model=self.model,
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                      self.chat().choices[0].message,
                      {"role": "assistant", "content": None,
                       "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
                      {"role": "tool", "tool_call_id": "1", "content": "2"}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], tool_choice="auto")
        self.assertEqual(reply.choices[0].message.content, "b")
        without = self.chat(max_tokens=1)
        with_tools = self.chat(max_tokens=1, tools=[{"type": "function", "function": {"name": "f"}}])
        self.assertGreater(with_tools.usage.prompt_tokens, without.usage.prompt_tokens)

    TOOLS = [{"type": "function", "function": {"name": name, "strict": True, "parameters": {
        "type": "object", "properties": {"x": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}}, "required": ["x", "kind"],
        "additionalProperties": False}}} for name in ("f", "g")]

    def test_tools_that_must_be_called(self):
        wanted = {"tools": self.TOOLS, "max_tokens": 200, "temperature": 1}
        for seed in range(3):
            choice = self.chat(tool_choice="required", parallel_tool_calls=False, seed=seed, **wanted).choices[0]
            self.assertEqual((choice.finish_reason, choice.message.content, len(choice.message.tool_calls)), ("tool_calls", None, 1))
            self.assertIn(json.loads(choice.message.tool_calls[0].function.arguments)["kind"], ("a", "b"))
        calls = self.chat(tool_choice={"type": "function", "function": {"name": "g"}}, **wanted).choices[0].message.tool_calls
        self.assertEqual([call.function.name for call in calls], ["g"])
        last = list(self.chat(tool_choice="required", stream=True, parallel_tool_calls=False, **wanted))[-1].choices[0]
        self.assertEqual((last.finish_reason, len(last.delta.tool_calls)), ("tool_calls", 1))
        self.assertEqual(self.chat(tools=self.TOOLS, parallel_tool_calls=False).choices[0].message.content, "b")  # any text

    def test_the_template_gets_its_variables(self):
        closed = self.chat(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
        self.assertGreater(closed.usage.prompt_tokens, self.chat().usage.prompt_tokens)

    def test_sessions_send_new_messages_alone(self):
        raw = self.client.chat.completions.with_raw_response
        first = raw.create(model=self.model, messages=[{"role": "user", "content": "Hi"}], extra_headers={"x-session-id": "new"})
        session = first.headers["x-session-id"]
        again = raw.create(model=self.model, messages=[{"role": "user", "content": "Hi again"}], extra_headers={"x-session-id": session})
        self.assertGreater(again.parse().usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(again.parse().choices[0].message.content, "b")

    def test_what_is_not_served_is_refused_by_name(self):
        for field, options in {"response_format.type": {"response_format": {"type": "xml"}}, "tool_choice": {"tool_choice": "required"},  # without tools
                               "reasoning_effort": {"reasoning_effort": "high"}, "audio": {"audio": {"format": "wav", "voice": "x"}},
                               "messages[0].content[0].type": {"messages": [{"role": "user", "content": [
                                   {"type": "image_url", "image_url": {"url": "http://x"}}]}]}}.items():
            with self.subTest(field), self.assertRaises(openai.BadRequestError) as error:
                self.chat(**options)
            self.assertEqual(error.exception.param, field)

    def test_async_chat(self):
        async def run():
            async with self.server.async_client() as client:
                whole = await client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": "Hi"}])
                text = ""
                async for chunk in await client.chat.completions.create(model=self.model, messages=[{"role": "user", "content": "Hi"}],
                                                                        stream=True):
                    text += chunk.choices[0].delta.content or ""
                return whole.choices[0].message.content, text
        self.assertEqual(asyncio.run(run()), ("b", "b"))


class ResponsesTest(ServerTest):
    """/v1/responses, with the model of ChatTest."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        subprocess.run([sys.executable, SOURCE / "tests/e2e/make_chat_model.py", cls.folder.name], check=True)
        cls.start(cls.folder.name)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def respond(self, said="Hi", **options):
        return self.client.responses.create(**{"model": self.model, "input": said, **options})

    @staticmethod
    def bits(response):
        """What the model gave every token and its alternatives: equal for equal contexts alone."""
        return [(token.token, *(other.logprob for other in token.top_logprobs)) for token in response.output[-1].content[0].logprobs]

    def test_whole(self):
        response = self.respond(instructions="Be brief.", metadata={"k": "v"}, user="ann")
        self.assertEqual((response.status, response.output_text, response.error), ("completed", "b", None))
        self.assertEqual([item.type for item in response.output], ["reasoning", "message"])
        self.assertEqual(response.output[0].content[0].text, "a")
        self.assertEqual((response.metadata, response.user, response.instructions), ({"k": "v"}, "ann", "Be brief."))
        self.assertEqual(response.usage.total_tokens, response.usage.input_tokens + response.usage.output_tokens)
        self.assertGreater(response.usage.output_tokens_details.reasoning_tokens, 0)
        self.assertEqual(self.client.responses.retrieve(response.id), response)

    def test_streamed(self):
        with self.client.responses.stream(model=self.model, input="Hi") as stream:
            types = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(final.output_text, "b")
        self.assertEqual(types[:2], ["response.created", "response.in_progress"])
        self.assertEqual(types[-1], "response.completed")
        self.assertIn("response.reasoning_text.delta", types)
        events = list(self.respond(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual("".join(event.delta for event in events if event.type == "response.output_text.delta"), "b")
        self.assertEqual(events[-1].response.usage, self.respond().usage)

    def test_a_chain_has_the_bits_of_the_whole_conversation(self):
        logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
        items, previous, turns = [], None, []
        for said in ("Hi", "Why?", "And then?", "Thank you."):
            items.append({"role": "user", "content": said})
            one = self.respond(said, previous_response_id=previous, instructions="Be brief.", **logprobs)
            whole = self.respond(items, instructions="Be brief.", store=False, **logprobs)
            self.assertEqual(self.bits(one), self.bits(whole))
            self.assertEqual(one.usage.input_tokens, whole.usage.input_tokens)
            items += one.output  # as clients do, its reasoning with it
            previous = one.id
            self.assertNotIn(self.bits(one), turns)  # they tell contexts apart
            turns.append(self.bits(one))

    def test_forks_and_what_becomes_of_a_response(self):
        first = self.respond()
        again = [self.respond("x", previous_response_id=first.id, top_logprobs=3).id for _ in range(3)]
        bits = [self.bits(self.client.responses.retrieve(response)) for response in again]
        self.assertEqual(bits, [bits[0]] * 3)
        self.respond("y", previous_response_id=again[0])
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError) as gone:
            self.respond("z", previous_response_id=first.id)
        self.assertEqual((gone.exception.code, gone.exception.param), ("previous_response_not_found", "previous_response_id"))
        self.assertIn("deleted", gone.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)
        self.respond("z", previous_response_id=again[0])  # which lives on
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(self.respond(store=False).id)

    def test_input_items_are_listed(self):
        first = self.respond([{"role": "user", "content": f"Number {i}"} for i in range(30)])
        items = list(self.client.responses.input_items.list(first.id, limit=7))  # page after page
        self.assertEqual([item.content[0].text for item in items], [f"Number {i}" for i in reversed(range(30))])
        page = self.client.responses.input_items.list(first.id, order="asc", after=items[1].id)
        self.assertEqual([item.content[0].text for item in page.data], ["Number 29"])
        next_one = self.respond("Go on", previous_response_id=first.id)
        self.assertEqual([item.content[0].text for item in self.client.responses.input_items.list(next_one.id)], ["Go on"])

    def test_tools_and_formats(self):
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]
        self.assertGreater(self.respond(tools=tools).usage.input_tokens, self.respond().usage.input_tokens)
        response = self.respond([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                                 {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "1", "output": "2"}], tools=tools)
        self.assertEqual(response.output_text, "b")
        schema = {"type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"], "additionalProperties": False}
        told = self.respond(max_output_tokens=60, text={"format": {"type": "json_schema", "name": "x", "schema": schema}},
                            reasoning={"effort": "none"})
        self.assertIn(json.loads(told.output_text)["old"], (True, False))

    def test_a_function_that_must_be_called(self):
        tool = {"type": "function", "name": "f", "strict": True, "parameters": {
            "type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}}
        call = self.respond(tools=[tool], tool_choice={"type": "function", "name": "f"}, max_output_tokens=100)
        self.assertEqual([item.type for item in call.output], ["function_call"])
        self.assertIn(json.loads(call.output[0].arguments)["x"], (True, False))
        answer = self.respond([{"type": "function_call_output", "call_id": call.output[0].call_id, "output": "3"}],
                              previous_response_id=call.id, tools=[tool])
        self.assertEqual(answer.output_text, "b")
        events = list(self.respond(tools=[tool], tool_choice="required", parallel_tool_calls=False, stream=True, max_output_tokens=100))
        self.assertIn("response.function_call_arguments.done", [event.type for event in events])

    def test_what_is_cut_is_incomplete_and_goes_on(self):
        cut = self.respond(max_output_tokens=2)
        self.assertEqual((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual(self.respond("Go on", previous_response_id=cut.id).status, "completed")

    def test_what_is_not_served_is_refused_by_name(self):
        for field, options in {"background": {"background": True}, "conversation": {"conversation": "c"}, "truncation": {"truncation": "auto"},
                               "tools[0].type": {"tools": [{"type": "web_search"}]}, "reasoning.effort": {"reasoning": {"effort": "high"}},
                               "input[0].content[0].type": {"input": [{"role": "user", "content": [
                                   {"type": "input_image", "image_url": "http://x", "detail": "auto"}]}]}}.items():
            with self.subTest(field), self.assertRaises(openai.BadRequestError) as error:
                self.respond(**options)
            self.assertEqual(error.exception.param, field)
        with self.assertRaises(openai.NotFoundError):
            self.respond(model="gpt-5")

    def test_cancel(self):
        stream = self.respond(stream=True, max_output_tokens=100000, extra_body={"ignore_eos": True})
        events = iter(stream)
        response = next(events).response
        self.assertEqual(self.client.responses.cancel(response.id).status, "cancelled")
        self.assertEqual(list(events)[-1].response.status, "cancelled")
        self.assertEqual(self.client.responses.retrieve(response.id).status, "cancelled")

    def test_async(self):
        async def run():
            async with self.server.async_client() as client:
                first = await client.responses.create(model=self.model, input="Hi")
                replies = await asyncio.gather(*(client.responses.create(
                    model=self.model, input="More", previous_response_id=first.id, top_logprobs=3)
                    for _ in range(16)))
                text = ""
                async for event in await client.responses.create(model=self.model, input="Hi", stream=True, previous_response_id=first.id):
                    text += event.delta if event.type == "response.output_text.delta" else ""
                return text, [self.bits(reply) for reply in replies]
        text, bits = asyncio.run(run())
        self.assertEqual(text, "b")
        self.assertEqual(bits, [bits[0]] * 16)


class OverloadTest(ServerTest):
    """One slot's worth of memory and a queue of one."""

    @classmethod
    def setUpClass(cls):
        cls.start(SOURCE / "models/tales", "--max-queue=1", "--state-memory=4MiB", "--prefix-cache=off")

    def test_refusals_say_when_to_retry_and_the_client_does(self):
        endless = {"model": "tales", "prompt": PROMPT, "max_tokens": 100000, "extra_body": {"ignore_eos": True}, "stream": True}
        running = self.client.completions.create(**endless)
        next(iter(running))
        patient = self.server.client().with_options(max_retries=20)
        waiting = threading.Thread(target=lambda: patient.completions.create(model="tales", prompt=PROMPT, max_tokens=5))
        waiting.start()
        error = None
        while error is None:  # until the other one waits
            try:
                self.client.with_options(timeout=0.2).completions.create(model="tales", prompt=PROMPT, max_tokens=5)
            except openai.RateLimitError as refused:
                error = refused
            except openai.APITimeoutError:
                pass
        self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
        self.assertGreaterEqual(int(error.response.headers["retry-after-ms"]), 1)
        self.assertEqual(error.type, "rate_limit_error")
        threading.Timer(1, running.close).start()
        self.assertEqual(patient.completions.create(model="tales", prompt=PROMPT, max_tokens=5).usage.completion_tokens, 5)
        waiting.join()


if __name__ == "__main__":
    unittest.main(verbosity=2)
