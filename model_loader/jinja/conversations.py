# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Random conversations for templates, in the layout that transformers takes."""

import pathlib

TEMPLATES = {path.stem: path.read_text(encoding="utf-8")
             for path in sorted((pathlib.Path(__file__).parent / "test_templates").glob("*.jinja"))}

PIECES = ["Hello", "hi there", "What is 2+2?", " ", "\n", "\n\n", "\t", "", "<think>", "</think>", "<tool_response>", "</tool_response>",
          "<|im_end|>", "{{ x }}", "{% if %}", "'", '"', "\\", "</s>", "世界", "🐺", "👩🏽‍🚀", "é", "e\u0301", "العربية", "\u3000", "\u200b",
          "\u2028", "\x00", "\x7f", "\r\n", "\x0b", "ß", "Σ", "don't", "<b>&amp;", "0", "1.5", "None", "a" * 50, "\U0010ffff", "\ue000"]


def text(random, most=6):
    return "".join(random.choice(PIECES) for _ in range(random.randint(0, most)))


def value(random, depth=0):
    kind = random.randint(0, 9 if depth < 3 else 6)
    if kind == 7:
        return [value(random, depth + 1) for _ in range(random.randint(0, 3))]
    if kind >= 8:
        return {text(random, 2): value(random, depth + 1) for _ in range(random.randint(0, 3))}
    return [text(random), random.randint(-10, 10), random.random() * 10 ** random.randint(-8, 20), True, False, None,
            random.choice([10 ** 18, 2 ** 63, -2 ** 70, 0, 1e100, -0.0, 100.0])][kind]


def tool(random):
    properties = {random.choice(["city", "größe", "n", "unit"]): {"type": random.choice(["string", "integer", ["string", "null"]]),
                                                                  "description": text(random), "enum": ["a", "b\n"]}
                  for _ in range(random.randint(0, 3))}
    function = {"name": random.choice(["get_weather", "find", "f"]), "description": text(random),
                "parameters": {"type": "object", "properties": properties, "required": list(properties)}}
    if random.random() < 0.2:
        function["return"] = value(random)
    return {"type": "function", "function": function} if random.random() < 0.9 else function


def content(random):
    if random.random() < 0.93:
        return text(random)
    return [{"type": "text", "text": text(random)} if random.random() < 0.8 else {"type": "image"} for _ in range(random.randint(0, 3))]


def tool_call(random):
    arguments = {text(random, 1) or "k": value(random) for _ in range(random.randint(0, 3))}
    call = {"type": "function", "function": {"name": "find", "arguments": arguments if random.random() < 0.9 else "{\"a\": 1}"}}
    if random.random() < 0.8:
        call["id"] = "abcdefghi" if random.random() < 0.9 else "x"
    return call


def message(random, role):
    result = {"role": role, "content": content(random)}
    if role == "assistant":
        if random.random() < 0.3:
            result["reasoning_content"] = text(random)
        if random.random() < 0.3:
            result["tool_calls"] = [tool_call(random) for _ in range(random.randint(1, 3))]
            if random.random() < 0.3:
                del result["content"]
    if role == "tool":
        result["tool_call_id"] = "abcdefghi"
    if random.random() < 0.1:
        result["name"] = text(random, 1)
    return result


def conversation(random):
    roles = ["system"] if random.random() < 0.5 else []
    for _ in range(random.randint(1, 4)):
        roles += ["user", "assistant"]
        if random.random() < 0.2:
            roles += ["tool"] * random.randint(1, 2) + ["assistant"]
    if random.random() < 0.5:
        roles.pop()
    if random.random() < 0.15:
        roles[random.randrange(len(roles))] = random.choice(["user", "system", "tool", "critic", "developer"])
    return [message(random, role) for role in roles]


def request(random):
    """(messages, tools, other variables)."""
    tools = [tool(random) for _ in range(random.randint(0, 3))] if random.random() < 0.4 else None
    variables = {"add_generation_prompt": random.random() < 0.7, "bos_token": "<s>", "eos_token": "</s>"}
    if random.random() < 0.5:
        variables["enable_thinking"] = random.random() < 0.5
    for name in ("title_roles", "with_date", "keep_past_thinking", "tools_in_user_message"):
        if random.random() < 0.2:
            variables[name] = random.random() < 0.5
    if random.random() < 0.1:
        variables["documents"] = [{"title": text(random), "text": text(random)}]
        variables["controls"] = value(random)
    return conversation(random), tools, variables
