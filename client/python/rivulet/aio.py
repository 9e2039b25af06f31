# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""The client for asyncio: what rivulet.client has, with async methods."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Dict, List, Optional, Type

import grpc

from rivulet import _proto
from rivulet._requests import GenerateArguments, Prompt, authorization, generate_request
from rivulet._retry import Retries
from rivulet.client import CHANNEL_OPTIONS, whole
from rivulet.errors import RivuletError, from_grpc
from rivulet.types import Completion, Model, Piece, SessionInfo, TokenLogprob, logprob_of, model_of, piece_of, session_of

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack


class AsyncStream:
    """As rivulet.Stream, for `async for` and `async with`."""

    def __init__(self, call: Any, first: Optional[Any]) -> None:
        self._call, self._next = call, first
        self.request_id = first.request_id if first is not None else ""
        self.session_id = first.session_id if first is not None else ""
        self.seed = first.seed if first is not None else 0

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        message, self._next = self._next, None
        if message is None:
            message = await read_one(self._call)
        if message is None:
            raise StopAsyncIteration
        return piece_of(message)

    def cancel(self) -> None:
        self._call.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.cancel()


async def read_one(call: Any) -> Optional[Any]:
    """The next message of a stream; None at its end."""
    try:
        message = await call.read()
    except grpc.RpcError as error:
        raise from_grpc(error) from None
    return None if message is grpc.aio.EOF else message


class AsyncClient:
    """As rivulet.Client. All of its methods belong to one event loop."""

    def __init__(self, server: str = "localhost:8590", *, timeout: Optional[float] = None, max_retries: int = 3,
                 credentials: Optional[Any] = None, token: Optional[str] = None) -> None:
        self._timeout, self._max_retries = timeout, max_retries
        self._metadata = authorization(token)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(server, options=CHANNEL_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(server, credentials, options=CHANNEL_OPTIONS)

    async def close(self) -> None:
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def model(self) -> Model:
        return model_of(await self._call("Inference", "GetModel", _proto.message("GetModelRequest")))

    async def generate(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> Completion:
        if arguments.setdefault("n", 1) != 1:
            raise TypeError("generate() has one completion: use generate_many()")
        return (await self.generate_many(prompt, **arguments))[0]

    async def generate_many(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> List[Completion]:
        return whole(iter([piece async for piece in await self.stream(prompt, **arguments)]))

    async def stream(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> AsyncStream:
        return await self._stream(prompt, "", dict(arguments))

    async def tokenize(self, text: str) -> List[int]:
        return list((await self._call("Inference", "Tokenize", _proto.message("TokenizeRequest", text=text))).token_ids)

    async def detokenize(self, token_ids: List[int]) -> str:
        return str((await self._call("Inference", "Detokenize", _proto.message("DetokenizeRequest", token_ids=token_ids))).text)

    async def score(self, text: str, top_logprobs: int = 0) -> List[TokenLogprob]:
        request = _proto.message("ScoreRequest", prompt=text, top_logprobs=top_logprobs)
        return [logprob_of(token) for token in (await self._call("Inference", "Score", request)).tokens]

    async def create_session(self, name: str = "", id: str = "") -> AsyncSession:
        request = _proto.message("CreateSessionRequest", id=id, name=name)
        return AsyncSession(self, (await self._call("Sessions", "CreateSession", request, repeatable=False)).id)

    def session(self, id: str) -> AsyncSession:
        return AsyncSession(self, id)

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        token = ""
        while True:
            page = await self._call("Sessions", "ListSessions", _proto.message("ListSessionsRequest", page_token=token))
            for session in page.sessions:
                yield session_of(session)
            token = page.next_page_token
            if not token:
                return

    async def _call(self, service: str, name: str, request: Any, repeatable: bool = True) -> Any:
        path, write, read = _proto.method(service, name)
        call = self._channel.unary_unary(path, request_serializer=write, response_deserializer=read)
        retries = Retries.of(self._max_retries, self._timeout)
        while True:
            try:
                return await call(request, timeout=retries.timeout(), metadata=self._metadata)
            except grpc.RpcError as problem:
                await self._wait(retries, from_grpc(problem), repeatable)

    async def _stream(self, prompt: Prompt, session_id: str, arguments: Dict[str, Any]) -> AsyncStream:
        retries = Retries.of(self._max_retries, arguments.pop("timeout", self._timeout))
        request = generate_request(prompt, session_id, **arguments)
        path, write, read = _proto.method("Inference", "Generate")
        method = self._channel.unary_stream(path, request_serializer=write, response_deserializer=read)
        while True:
            call = method(request, timeout=retries.timeout(), metadata=self._metadata)
            try:
                return AsyncStream(call, await read_one(call))
            except RivuletError as error:
                await self._wait(retries, error, repeatable=not session_id)

    @staticmethod
    async def _wait(retries: Retries, error: RivuletError, repeatable: bool) -> None:
        wait = retries.wait_after(error, repeatable)
        if wait is None:
            raise error from None
        await asyncio.sleep(wait)


class AsyncSession:
    """As rivulet.Session."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self._client, self.id = client, id

    async def generate(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> Completion:
        if arguments.setdefault("n", 1) != 1:
            raise TypeError("generate() has one completion: use generate_many()")
        return (await self.generate_many(prompt, **arguments))[0]

    async def generate_many(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> List[Completion]:
        return whole(iter([piece async for piece in await self.stream(prompt, **arguments)]))

    async def stream(self, prompt: Prompt = None, **arguments: Unpack[GenerateArguments]) -> AsyncStream:
        return await self._client._stream(prompt, self.id, dict(arguments))

    async def fork(self, position: Optional[int] = None, *, name: str = "", id: str = "") -> AsyncSession:
        request = _proto.message("ForkSessionRequest", id=self.id, new_id=id, name=name, position=position)
        return AsyncSession(self._client, (await self._client._call("Sessions", "ForkSession", request, repeatable=False)).id)

    async def rewind(self, position: int) -> SessionInfo:
        request = _proto.message("RewindSessionRequest", id=self.id, position=position)
        return session_of(await self._client._call("Sessions", "RewindSession", request))

    async def info(self) -> SessionInfo:
        return session_of(await self._client._call("Sessions", "GetSession", _proto.message("GetSessionRequest", id=self.id)))

    async def rename(self, name: str) -> SessionInfo:
        request = _proto.message("UpdateSessionRequest", id=self.id, name=name)
        return session_of(await self._client._call("Sessions", "UpdateSession", request))

    async def delete(self) -> None:
        await self._client._call("Sessions", "DeleteSession", _proto.message("DeleteSessionRequest", id=self.id), repeatable=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.delete()
