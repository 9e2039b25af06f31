# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Many requests at once, with asyncio. Their order and company change no byte of an answer."""

import asyncio
import os

from rivulet import AsyncClient

PROMPTS = ["The fox said", "The wolf said", "The hare said", "The queen said"]


async def main() -> None:
    async with AsyncClient(os.environ.get("RIVULET_SERVER", "localhost:8590"), timeout=60) as client:
        completions = await asyncio.gather(*(client.generate(prompt, max_tokens=30, seed=7) for prompt in PROMPTS))
        for prompt, completion in zip(PROMPTS, completions):
            print(prompt + completion.text)


asyncio.run(main())
