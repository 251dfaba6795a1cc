"""Decode or prefill by onnxruntime-genai's generator; prints tokens a second, of all rows together.

python3 onnxruntime-genai-rate.py '{"folder": ..., "threads": ..., "vocabSize": ..., "work": {...}}'
"""

import json
import sys
import time

import numpy
import onnxruntime_genai

WARM_UP_STEPS = 8

plan = json.loads(sys.argv[1])
work = plan["work"]
config = onnxruntime_genai.Config(plan["folder"])
session = {"session_options": {"intra_op_num_threads": plan["threads"]}}
config.overlay(json.dumps({"model": {"decoder": session}}))
model = onnxruntime_genai.Model(config)
random = numpy.random.default_rng(1)


def start(rows: int, tokens: int, steps: int):
    """The generator with a prompt in every row, and the seconds that it took."""
    params = onnxruntime_genai.GeneratorParams(model)
    length = tokens + steps
    # The least length keeps an end token from ending a row.
    params.set_search_options(batch_size=rows, min_length=length, max_length=length, do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    prompt = random.integers(3, plan["vocabSize"], (rows, tokens)).astype(numpy.int32)
    started = time.perf_counter()
    generator.append_tokens(prompt)
    return generator, time.perf_counter() - started


if work["kind"] == "prefill":
    tokens = work["promptTokens"]
    first, _ = start(1, tokens, 1)
    del first
    _, seconds = start(1, tokens, 1)
    print(tokens / seconds)
else:
    rows, steps = work["batch"], work["stepCount"]
    generator, _ = start(rows, work["contextTokens"], WARM_UP_STEPS + steps + 1)
    for _ in range(WARM_UP_STEPS):
        generator.generate_next_token()
    started = time.perf_counter()
    for _ in range(steps):
        generator.generate_next_token()
    print(rows * steps / (time.perf_counter() - started))
