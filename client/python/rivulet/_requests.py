# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""From the arguments of generate() and stream() to a GenerateRequest: the same for both clients."""

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

from rivulet import _proto

Message = Mapping[str, Any]
Metadata = Sequence[Tuple[str, str]]
Prompt = Union[str, Sequence[int], None]

def authorization(token: Optional[str]) -> Metadata:
    """What each call sends for a server that asks for tokens."""
    return [("authorization", f"Bearer {token}")] if token else []


class GenerateArguments(TypedDict, total=False):
    """Of generate() and stream(); the API's fields of the same names (inference.proto)."""

    messages: Sequence[Message]  # instead of a prompt
    tools: Sequence[Mapping[str, Any]]
    enable_thinking: bool
    template_variables: Mapping[str, Any]
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    logit_bias: Mapping[int, float]
    stop: Union[str, Sequence[str]]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    include_stop: bool
    min_tokens: int
    n: int
    keep_choices: bool  # on a session: the other completions become sessions
    logprobs: int
    json_schema: Union[str, Mapping[str, Any]]  # of these five, one
    json_object: bool
    regex: str
    choices: Sequence[str]
    grammar: str
    special_tokens: bool
    cache_salt: str
    request_id: str
    timeout: Optional[float]  # seconds; default: the client's


_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed")
_STOP = ("ignore_eos", "include_stop", "min_tokens")
_PLAIN = ("max_tokens", "n", "logprobs", "keep_choices", "special_tokens", "cache_salt", "request_id")
_STRUCTURE = ("json_object", "regex", "grammar")
_TEXTS = ("role", "content", "name", "reasoning_content", "tool_call_id")


def _message_of(message: Message) -> Any:
    fields: Dict[str, Any] = {key: message[key] for key in _TEXTS if message.get(key) is not None}
    if message.get("tool_calls"):
        fields["tool_calls"] = json.dumps(message["tool_calls"])
    others = {key: value for key, value in message.items() if key not in (*_TEXTS, "tool_calls")}
    if others:
        fields["fields"] = json.dumps(others)
    return _proto.message("Message", **fields)


def messages_of(messages: Sequence[Message], tools: Optional[Sequence[Mapping[str, Any]]], enable_thinking: Optional[bool],
                template_variables: Optional[Mapping[str, Any]]) -> Any:
    result = _proto.message("Messages", messages=[_message_of(message) for message in messages], tools=[json.dumps(tool) for tool in tools or ()])
    if enable_thinking is not None:
        result.enable_thinking = enable_thinking
    if template_variables:
        result.variables = json.dumps(template_variables)
    return result


def _structure_of(arguments: Dict[str, Any]) -> Optional[Any]:
    asked = {name: arguments.pop(name) for name in _STRUCTURE if arguments.get(name) is not None}
    schema, choices = arguments.pop("json_schema", None), arguments.pop("choices", None)
    if schema is not None:
        asked["json_schema"] = schema if isinstance(schema, str) else json.dumps(schema)
    if isinstance(choices, str):
        raise TypeError("choices is a list of texts")
    if choices is not None:
        asked["choices"] = _proto.message("StringList", strings=choices)
    if len(asked) > 1:
        raise TypeError(f"only one of {', '.join(sorted(asked))} can be asked for")
    return _proto.message("StructuredOutput", **asked) if asked else None


def _stop_texts(stop: Union[str, Sequence[str]]) -> List[str]:
    return [stop] if isinstance(stop, str) else list(stop)


def generate_request(prompt: Prompt, session_id: str = "", /, **arguments: Any) -> Any:
    """TypeError for an argument that there is not, and where not exactly one of prompt and messages is given."""
    arguments = {name: value for name, value in arguments.items() if value is not None}
    request = _proto.message("GenerateRequest", session_id=session_id)
    messages = arguments.pop("messages", None)
    template = {name: arguments.pop(name, None) for name in ("tools", "enable_thinking", "template_variables")}
    if messages is not None and prompt is not None:
        raise TypeError("give prompt or messages, not both")
    if messages is not None:
        request.messages.CopyFrom(messages_of(messages, **template))
    elif any(value is not None for value in template.values()):
        raise TypeError("tools, enable_thinking and template_variables belong to messages")
    elif isinstance(prompt, str):
        request.prompt = prompt
    elif prompt is not None:
        request.token_ids.CopyFrom(_proto.message("TokenIds", ids=prompt))
    for name in _SAMPLING:
        if name in arguments:
            setattr(request.sampling, name, arguments.pop(name))
    for token, bias in arguments.pop("logit_bias", {}).items():
        request.sampling.logit_bias[token] = bias
    request.stop.strings.extend(_stop_texts(arguments.pop("stop", ())))
    request.stop.token_ids.extend(arguments.pop("stop_token_ids", ()))
    for name in _STOP:
        if name in arguments:
            setattr(request.stop, name, arguments.pop(name))
    structure = _structure_of(arguments)
    if structure is not None:
        request.structured_output.CopyFrom(structure)
    for name in _PLAIN:
        if name in arguments:
            setattr(request, name, arguments.pop(name))
    if arguments:
        raise TypeError(f"there is no argument {next(iter(arguments))}")
    return request
