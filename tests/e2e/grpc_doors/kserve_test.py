# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""KServe's protocol with Triton's official client (PyPI's tritonclient), against the real server. Run by run.py."""

import asyncio
import json
import queue
import unittest

import numpy
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from smg_grpc_proto.generated import vllm_engine_pb2 as engine, vllm_engine_pb2_grpc
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import InferenceServerException

import grpc
import our_server

PROMPT = "Once upon a time"


def tensor(name, datatype, values):
    array = numpy.array(values, dtype={"BYTES": object, "BOOL": bool, "INT32": numpy.int32}[datatype])
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def inputs(prompt=PROMPT, stream=False, exclude=True, **sampling):
    prompt = tensor("input_ids", "INT32", prompt) if isinstance(prompt, list) else tensor("text_input", "BYTES", [prompt.encode()])
    made = [prompt, tensor("stream", "BOOL", [stream]),
            tensor("sampling_parameters", "BYTES", [json.dumps({"max_tokens": 30, "seed": 1, **sampling}).encode()])]
    return made if stream else [*made, tensor("exclude_input_in_output", "BOOL", [exclude])]


def outputs(*names):
    return [triton.InferRequestedOutput(name) for name in ("text_output", *names)]


def text_of(result, index=0):
    return result.as_numpy("text_output")[index].decode()


class InferTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = our_server.Server()
        cls.client = triton.InferenceServerClient(cls.server.grpc)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.server.stop()
        assert code == 0, f"exit code {code}\n" + "".join(cls.server.log)

    def infer(self, *arguments, ask=(), parameters=None, client_options=None, **sampling):
        return self.client.infer("tales", inputs(*arguments, **sampling), outputs=outputs(*ask), parameters=parameters, **(client_options or {}))

    def stream(self, requests):
        """Sends them on one stream; ([text], [finals], [error]) in the order of the responses, by id."""
        arrived = queue.Queue()
        with triton.InferenceServerClient(self.server.grpc) as client:
            client.start_stream(callback=lambda result, error: arrived.put((result, error)))
            for request in requests:
                client.async_stream_infer("tales", **request)
            found = {request["request_id"]: {"texts": [], "tokens": [], "finals": 0, "errors": []} for request in requests}
            while any(reply["finals"] == 0 and not reply["errors"] for reply in found.values()):
                result, error = arrived.get(timeout=60)
                if error is not None:  # Triton's client drops what else the response says
                    next(reply for reply in found.values() if not reply["finals"] and not reply["errors"])["errors"].append(str(error))
                    continue
                reply = found[result.get_response().id]
                reply["texts"].append(text_of(result))
                reply["tokens"] += [int(token) for token in result.as_numpy("output_ids")] if result.as_numpy("output_ids") is not None else []
                reply["finals"] += result.get_response().parameters["triton_final_response"].bool_param
            client.stop_stream()
        return found

    def test_the_published_descriptors_are_ours(self):
        self.assertEqual(our_server.our_shape("kserve/grpc_service.proto"), our_server.published_shape(service_pb2))
        self.assertEqual(our_server.our_shape("kserve/model_config.proto"), our_server.published_shape(model_config_pb2))

    def test_the_same_tokens_as_in_the_other_protocols(self):
        ids = self.server.tokenize(PROMPT, add_bos=True)
        for sampling in ({"temperature": 0}, {"temperature": 1, "top_p": 0.9, "seed": 7, "frequency_penalty": 0.5}):
            with self.subTest(sampling):
                sampling = {"top_p": 1, "repetition_penalty": 1, "seed": 1, **sampling}
                tokens, text, _ = self.server.generate(PROMPT, max_tokens=30, **sampling)
                whole = self.infer(ask=["output_ids"], **sampling)
                self.assertEqual((list(whole.as_numpy("output_ids")), text_of(whole)), (tokens, text))
                self.assertEqual(list(self.infer(ids, ask=["output_ids"], **sampling).as_numpy("output_ids")), tokens)
                streamed = self.stream([{"request_id": "1", "inputs": inputs(stream=True, **sampling), "outputs": outputs("output_ids")}])["1"]
                self.assertEqual((streamed["tokens"], "".join(streamed["texts"])), (tokens, text))
                self.assertGreater(len(streamed["texts"]), 1)
                with grpc.insecure_channel(self.server.grpc) as channel:
                    request = engine.GenerateRequest(tokenized=engine.TokenizedInput(input_ids=ids),
                                                     sampling_params=engine.SamplingParams(max_tokens=30, **sampling))
                    reply = next(vllm_engine_pb2_grpc.VllmEngineStub(channel).Generate(request, timeout=60))
                self.assertEqual(list(reply.complete.output_ids), tokens)

    def test_completions_and_what_can_be_asked_for(self):
        result = self.infer(ask=["finish_reason", "num_input_tokens", "num_output_tokens"], n=3, temperature=1, exclude=False)
        texts = [text.decode() for text in result.as_numpy("text_output")]
        self.assertEqual(len(set(texts)), 3)
        self.assertTrue(all(text.startswith(PROMPT) for text in texts))
        self.assertEqual([reason.decode() for reason in result.as_numpy("finish_reason")], ["length"] * 3)
        self.assertEqual((list(result.as_numpy("num_input_tokens")), list(result.as_numpy("num_output_tokens"))), ([5], [30] * 3))
        self.assertEqual(text_of(self.infer(temperature=1)), texts[0].removeprefix(PROMPT))

    def test_stop_strings_and_parameters_of_the_request(self):
        whole = text_of(self.infer(temperature=0))
        word = whole.split()[5]
        self.assertEqual(text_of(self.infer(temperature=0, stop=[word])), whole[:whole.index(word)])
        self.assertEqual(text_of(self.infer(parameters={"temperature": 0})), whole)

    def test_structured_outputs(self):
        schema = {"type": "object", "properties": {"old": {"type": "boolean"}, "age": {"enum": [7, 8]}}, "required": ["old", "age"]}
        for asked in (schema, json.dumps(schema)):
            said = json.loads(text_of(self.infer(structured_outputs={"json": asked}, max_tokens=60)))
            self.assertEqual((list(said), type(said["old"]), said["age"] in (7, 8)), (["old", "age"], bool, True))
        self.assertRegex(text_of(self.infer(parameters={"structured_outputs": '{"regex": "[ab]{5}"}'})), "^[ab]{5}$")
        reply = self.stream([{"request_id": "1", "inputs": inputs(stream=True, structured_outputs={"choice": ["red", "blue"]})}])["1"]
        self.assertIn("".join(reply["texts"]), ("red", "blue"))

    def test_sequences(self):
        ids = self.server.tokenize(PROMPT, add_bos=True)
        first = list(self.infer(ids, ask=["output_ids"], temperature=0, client_options={"sequence_id": 7, "sequence_start": True}).as_numpy("output_ids"))
        listed = self.server.sessions()
        self.assertIn("sequence:7", listed)
        more = self.server.tokenize(" and then")
        second = self.infer(more, ask=["output_ids"], temperature=0, client_options={"sequence_id": 7, "sequence_end": True})
        whole = self.infer([*ids, *map(int, first), *more], ask=["output_ids"], temperature=0)
        self.assertEqual(list(second.as_numpy("output_ids")), list(whole.as_numpy("output_ids")))
        self.assertNotIn("sequence:7", self.server.sessions())
        with self.assertRaises(InferenceServerException) as gone:
            self.infer(client_options={"sequence_id": 7})
        self.assertEqual(gone.exception.status(), "StatusCode.NOT_FOUND")

    def test_turns_of_many_sequences_on_one_stream(self):
        requests = [{"request_id": f"{sequence}.{turn}", "inputs": inputs(f" It was day {turn}.", stream=True, temperature=0, max_tokens=8),
                     "outputs": outputs("output_ids"), "sequence_id": f"s{sequence}", "sequence_start": turn == 0, "sequence_end": turn == 2}
                    for turn in range(3) for sequence in range(4)]
        found = self.stream(requests)
        self.assertEqual({(len(reply["tokens"]), reply["finals"], len(reply["errors"])) for reply in found.values()}, {(8, 1, 0)})
        for turn in range(3):
            self.assertEqual(len({tuple(found[f"{sequence}.{turn}"]["tokens"]) for sequence in range(4)}), 1)

    def test_a_timeout_is_a_deadline(self):
        with self.assertRaises(InferenceServerException) as late:
            self.infer(max_tokens=1000000, ignore_eos=True, client_options={"timeout": 200000})
        self.assertEqual(late.exception.status(), "StatusCode.DEADLINE_EXCEEDED")
        found = self.stream([{"request_id": "late", "inputs": inputs(stream=True, max_tokens=1000000, ignore_eos=True), "timeout": 200000}])
        self.assertIn("DEADLINE_EXCEEDED", found["late"]["errors"][0])

    def test_the_empty_final_response_is_never_needed(self):
        found = self.stream([{"request_id": "1", "inputs": inputs(stream=True, temperature=0), "enable_empty_final_response": True}])
        self.assertEqual(found["1"]["finals"], 1)

    def test_what_is_not_served_is_refused_by_name(self):
        def refused(status, call, text):
            with self.assertRaises(InferenceServerException) as error:
                call()
            self.assertEqual(error.exception.status(), f"StatusCode.{status}")
            self.assertIn(text, error.exception.message())
        refused("INVALID_ARGUMENT", lambda: self.infer(temperature=-1), "temperature")
        refused("INVALID_ARGUMENT", lambda: self.infer(logprobs=1), "logprobs")
        refused("INVALID_ARGUMENT", lambda: self.infer(parameters={"nonsense": 1}), "nonsense")
        refused("INVALID_ARGUMENT", lambda: self.infer(client_options={"priority": 3}), "priority")
        refused("INVALID_ARGUMENT", lambda: self.client.infer("tales", inputs(stream=True)), "ModelStreamInfer")
        refused("NOT_FOUND", lambda: self.client.infer("gpt-5", inputs()), "gpt-5")
        refused("UNIMPLEMENTED", lambda: self.client.load_model("tales"), "started with")
        refused("UNIMPLEMENTED", lambda: self.client.register_system_shared_memory("x", "/x", 1), "shared memory")

    def test_what_the_server_says_of_itself(self):
        self.assertTrue(self.client.is_server_live() and self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("tales"))
        self.assertFalse(self.client.is_model_ready("gpt-5"))
        self.assertEqual(self.client.get_server_metadata().name, "rivulet")
        self.assertIn("text_input", [described.name for described in self.client.get_model_metadata("tales").inputs])
        self.assertTrue(self.client.get_model_config("tales").config.model_transaction_policy.decoupled)
        self.assertEqual([model.name for model in self.client.get_model_repository_index().models], ["tales"])
        self.infer()
        self.assertGreater(self.client.get_inference_statistics("tales").model_stats[0].inference_count, 0)
        self.client.unregister_system_shared_memory()  # of all regions, as clients do before they begin
        self.assertEqual(len(self.client.get_system_shared_memory_status().regions), 0)

    def test_asyncio(self):
        async def run():
            async with triton_aio.InferenceServerClient(self.server.grpc) as client:
                results = await asyncio.gather(*(client.infer("tales", inputs(seed=seed, temperature=1)) for seed in range(16)))

                async def requests():
                    yield {"model_name": "tales", "inputs": inputs(stream=True, temperature=0), "request_id": "1"}
                text = ""
                async for result, error in client.stream_infer(requests()):
                    self.assertIsNone(error)
                    text += text_of(result)
                return [text_of(result) for result in results], text
        texts, streamed = asyncio.run(run())
        self.assertEqual(texts, [text_of(self.infer(seed=seed, temperature=1)) for seed in range(16)])
        self.assertEqual(streamed, text_of(self.infer(temperature=0)))

    def test_a_client_that_leaves_ends_its_request(self):
        client = triton.InferenceServerClient(self.server.grpc)
        arrived = queue.Queue()
        client.start_stream(callback=lambda result, error: arrived.put(result))
        client.async_stream_infer("tales", inputs(stream=True, max_tokens=1000000, ignore_eos=True), request_id="left")
        arrived.get(timeout=60)
        client.stop_stream(cancel_requests=True)
        client.close()
        self.assertTrue(our_server.eventually(lambda: any("request_id=left" in line and "CANCELLED" in line for line in self.server.log)))


if __name__ == "__main__":
    unittest.main()
