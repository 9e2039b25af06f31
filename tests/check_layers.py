#!/usr/bin/env python3
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""Checks the rules of the layout in every source file of the repository.

Includes go one way, between layers (LAYERS below) and between mixers (MIXER_USES). Production code does not include test code.
Protobuf and gRPC stop at server/service, JSON above kernels/, CUDA headers at kernels/*.cu. Every header has the guard that follows from
its path, and includes <cstdint> if it names int64_t or a similar type, since newer libraries no longer include it. Every file has the
copyright line and fewer than 700 lines.

    tests/check_layers.py [ROOT]       prints each violation as path:line: reason, and exits 1 when there is one
    tests/check_layers.py --self-test  plants violations in a temporary tree and checks that each is found
"""

import itertools
import pathlib
import re
import sys
import tempfile

MAX_LINES = 700
COPYRIGHT = "Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0"

# Each layer and the layers it may include besides itself. A file belongs to the longest folder that holds it.
KERNELS = ["kernels/base", "kernels/device", "kernels/recurrence", "kernels/ops", "kernels/mixers"]
LEAVES = ["server/log", "server/metrics", "server/security", "server/text", "server/grammar"]
ENGINE = KERNELS + LEAVES + ["model_loader"]
LAYERS = {
    "kernels/base": [],
    "kernels/device": ["kernels/base"],
    "kernels/recurrence": ["kernels/base", "kernels/device"],
    "kernels/ops": ["kernels/base", "kernels/device", "kernels/recurrence"],
    "kernels/mixers": ["kernels/base", "kernels/device", "kernels/recurrence", "kernels/ops"],
    "model_loader": KERNELS,
    "server/log": ["kernels/base"],
    "server/metrics": [],
    "server/security": ["kernels/base", "server/metrics"],
    "server/http": ["kernels/base", "server/log", "server/metrics", "server/security"],
    "server/console": ["kernels/base", "server/metrics", "server/http"],
    "server/text": ["kernels/base", "model_loader"],
    "server/grammar": ["kernels/base", "model_loader"],
    "server/engine": ENGINE,
    "server/session": ENGINE + ["server/engine"],
    "server/drafts": ENGINE + ["server/engine", "server/session"],
    "server/scheduler": ENGINE + ["server/engine", "server/session", "server/drafts"],
    "server/service": ENGINE + ["server/engine", "server/session", "server/scheduler"],
    "server/rpc": ENGINE + ["server/engine", "server/session", "server/scheduler", "server/service"],
    "server/openai": ENGINE + ["server/engine", "server/session", "server/scheduler", "server/service", "server/http"],
    "server/vllm": ENGINE + ["server/engine", "server/session", "server/scheduler", "server/service", "server/rpc"],
    "server/kserve": ENGINE + ["server/engine", "server/session", "server/scheduler", "server/service", "server/rpc"],
    "server": ENGINE + ["server/engine", "server/session", "server/drafts", "server/scheduler", "server/service", "server/rpc", "server/http",
                        "server/openai", "server/console", "server/vllm", "server/kserve"],
    "client": ["kernels/base"],
}
# Each folder of kernels/mixers is a layer of its own. Besides itself and the files directly in kernels/mixers it may include the folders
# named here, which may not include it.
MIXER_USES = {
    "delta_net": ["log_linear"],
    "gated_deltanet": ["delta_net"],
    "kda": ["delta_net"],
    "latent_attention": ["pool_selection", "softmax_attention"],
    "log_linear_gated_deltanet": ["delta_net", "log_linear"],
    "log_linear_mamba2": ["log_linear", "mamba2"],
    "mamba2": ["log_linear"],
    "shared_transformer": ["mamba2", "pool_selection", "softmax_attention"],
    "softmax_attention": ["pool_selection"],
}
# The only files directly in kernels/mixers that may include the mixers.
MIXER_LISTS = {"kernels/mixers/mixer_config.cc", "kernels/mixers/mixer_config.h"}
# What only tests and benchmarks compile.
TEST_FILE = re.compile(r"(_test|_bench|_fuzz|_fixture|_reference|_subject|/subject_checks|/core_subject|/mixer_suite\w*|/suite_slots|"
                       r"/allocation_counter|/bench_sessions|/oracle_drafter|/random_(model|parameters)|/fake_\w+|/device_buffers|/test_(seed|support)|/testing)\.(cc|h)$")
MAY_INCLUDE_PROTO = {"server/service", "server/rpc", "server/openai", "server/vllm", "server/kserve", "server", "client"}
# May include everything.
UNRESTRICTED = ("tests/", "bench/doors_bench.cc")

SOURCE_SUFFIXES = {".cc", ".h", ".cu", ".cuh", ".in", ".py", ".cmake", ".proto"}
CXX_SUFFIXES = {".cc", ".h", ".cu", ".cuh"}
SKIPPED_FOLDERS = {"build", "__pycache__", "venv", "node_modules"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
PROTO_HEADER = re.compile(r"\.pb\.h$|^rivulet/v1/|^google/protobuf/|^grpcpp/|^grpc/")
GRPC_HEADER = re.compile(r"^grpcpp/|^grpc/|\.grpc\.pb\.h$")
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|cusparse|nccl|nvtx|mma\.h|cub/|thrust/|cute/|cutlass/)")
FIXED_WIDTH = re.compile(r"\bu?int(8|16|32|64)_t\b")


def layer_of(path):
    """The layer of a file or an included path, or None."""
    folders = [folder for folder in LAYERS if path.startswith(folder + "/")]
    return max(folders, key=len, default=None)


def mixer_of(path):
    """The folder of kernels/mixers that holds a file or an included path, or None."""
    parts = path.split("/")
    return parts[2] if parts[:2] == ["kernels", "mixers"] and len(parts) > 3 else None


def check_mixer_include(path, target):
    """Yields why a file of kernels/mixers may not include a mixer's file."""
    mixer, other = mixer_of(path), mixer_of(target)
    if not path.startswith("kernels/mixers/") or other in (None, mixer):
        return
    if mixer is None and path not in MIXER_LISTS:
        yield f'"{target}": files that all mixers share may not include a mixer'
    elif mixer is not None and other not in MIXER_USES.get(mixer, ()):
        yield f'"{target}": the mixer {mixer} may not include {other}'


def check_include(path, target):
    """Yields why the file `path` may not include `target`."""
    layer = layer_of(path)
    target_layer = layer_of(target)
    if target.startswith("."):
        yield f'"{target}": includes are written from the repository root'
    if path.startswith(UNRESTRICTED):
        return
    if layer and target_layer and target_layer != layer and target_layer not in LAYERS[layer]:
        yield f'"{target}": {layer} may not include {target_layer}'
    yield from check_mixer_include(path, target)
    if layer and TEST_FILE.search(target) and not TEST_FILE.search(path):
        yield f'"{target}": production code may not include test code'
    if layer and target.startswith("tests/"):
        yield f'"{target}": only tests/ may include tests/'
    if PROTO_HEADER.search(target) and layer not in MAY_INCLUDE_PROTO:
        yield f'"{target}": protobuf and gRPC stop at server/service'
    if GRPC_HEADER.search(target) and layer in ("server/service", "server/openai"):
        yield f'"{target}": gRPC stops at server/rpc'
    if target.startswith("nlohmann/") and path.startswith("kernels/") and not TEST_FILE.search(path):
        yield f'"{target}": kernels/ knows no JSON; model_loader parses it'
    cuda_allowed = path.startswith("kernels/") and path.endswith((".cu", ".cuh"))
    if CUDA_HEADER.search(target) and not cuda_allowed:
        yield f'"{target}": CUDA headers stop at .cu and .cuh files in kernels/'


def check_guard(path, text):
    guard = "RIVULET_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
    # Highway's headers are included once per SIMD target and toggle their guard.
    if f"#ifndef {guard}\n#define {guard}\n" not in text and f"#if defined({guard}) == " not in text:
        yield f"no header guard {guard}"


def check_cstdint(text):
    if FIXED_WIDTH.search(text) and "#include <cstdint>" not in text:
        yield f"names {FIXED_WIDTH.search(text).group(0)} without #include <cstdint>"


def check_file(path, text):
    """Yields (line, reason) for one file; `path` is relative to the root, with forward slashes."""
    lines = text.splitlines()
    if len(lines) >= MAX_LINES:
        yield len(lines), f"{len(lines)} lines; a file has fewer than {MAX_LINES}"
    if lines and not any(COPYRIGHT in line for line in lines[:3]) and not path.startswith("proto/"):
        yield 1, f"no line '{COPYRIGHT}'"
    suffix = pathlib.PurePosixPath(path).suffix
    if suffix in (".h", ".cuh"):
        for reason in itertools.chain(check_guard(path, text), check_cstdint(text)):
            yield 1, reason
    if suffix in CXX_SUFFIXES:
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            for reason in check_include(path, match.group(1)) if match else ():
                yield number, reason


def mixer_cycles():
    """Mixers that use themselves through others."""
    def reached(mixer):
        return {found for other in MIXER_USES.get(mixer, ()) for found in {other} | reached(other)}
    return [mixer for mixer in MIXER_USES if mixer in reached(mixer)]


def source_files(root):
    for path in sorted(root.iterdir()):
        if path.name.startswith(".") or path.is_symlink() or path.name in SKIPPED_FOLDERS:
            continue
        if path.is_dir():
            yield from source_files(path)
        elif path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt":
            yield path


def check_tree(root):
    """All violations below root, as printable lines."""
    violations = []
    for file in source_files(root):
        path = file.relative_to(root).as_posix()
        for line, reason in check_file(path, file.read_text(encoding="utf-8")):
            violations.append(f"{path}:{line}: {reason}")
    return violations


def header(path, body=""):
    guard = "RIVULET_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"
    return f"// {COPYRIGHT}\n#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"


def source(*includes):
    return f"// {COPYRIGHT}\n" + "".join(f"#include {target}\n" for target in includes)


# Files that are fine, and files with the violation that must be found in each.
GOOD = {
    "kernels/base/a.h": header("kernels/base/a.h", "#include <vector>"),
    "kernels/base/device.cu": source("<cuda_runtime_api.h>"),
    "kernels/mixers/mixer_config.cc": source('"kernels/mixers/hla/hla.h"'),
    "kernels/mixers/gla/gla_test.cc": source('"kernels/mixers/mixer_suite.h"', '"kernels/mixers/gla/gla_reference.h"'),
    "kernels/mixers/hla/third/t.cc": source('"kernels/mixers/hla/hla.h"'),
    "kernels/mixers/log_linear_mamba2/l.cc": source('"kernels/mixers/mamba2/mamba2_config.h"'),
    "kernels/mixers/hla/hla.cc": source('"kernels/mixers/mixer.h"', '"kernels/recurrence/r.h"', '"kernels/ops/norm/norm.h"'),
    "kernels/base/simd-inl.h": f"// {COPYRIGHT}\n#if defined(RIVULET_KERNELS_BASE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)\n",
    "server/scheduler/s.cc": source('"server/session/s.h"', '"server/metrics/m.h"', '"absl/status/status.h"'),
    "server/rpc/r.cc": source('"rivulet/v1/inference.grpc.pb.h"', "<grpcpp/grpcpp.h>", '"server/scheduler/s.h"'),
    "tests/e2e/t.cc": source('"server/rpc/r.h"', '"client/c.h"', '"google/protobuf/arena.h"'),
}
BAD = {
    "kernels/base/up.cc": (source('"kernels/ops/norm/norm.h"'), "kernels/base may not include kernels/ops"),
    "kernels/recurrence/up.cc": (source('"kernels/mixers/mixer.h"'), "kernels/recurrence may not include kernels/mixers"),
    "kernels/mixers/gla/gla_config.cc": (source('"nlohmann/json.hpp"'), "kernels/ knows no JSON"),
    "kernels/mixers/stages.cc": (source('"kernels/mixers/gla/gla.h"'), "files that all mixers share may not include a mixer"),
    "kernels/mixers/mamba2/back.cc": (source('"kernels/mixers/log_linear_mamba2/l.h"'), "mamba2 may not include log_linear_mamba2"),
    "kernels/mixers/gla/side.cc": (source('"kernels/mixers/retnet/retnet.h"'), "gla may not include retnet"),
    "kernels/mixers/gla/gla_layer.cc": (source('"kernels/mixers/gla/gla_reference.h"'), "may not include test code"),
    "server/scheduler/fake.cc": (source('"server/engine/fake_engine.h"'), "may not include test code"),
    "kernels/ops/norm/up.cc": (source('"server/engine/e.h"'), "kernels/ops may not include server/engine"),
    "model_loader/up.cc": (source('"server/text/t.h"'), "model_loader may not include server/text"),
    "server/metrics/up.cc": (source('"server/engine/e.h"'), "server/metrics may not include server/engine"),
    "server/engine/up.cc": (source('"server/session/s.h"'), "server/engine may not include server/session"),
    "server/session/up.cc": (source('"server/scheduler/s.h"'), "server/session may not include server/scheduler"),
    "server/scheduler/up.cc": (source('"server/rpc/r.h"'), "server/scheduler may not include server/rpc"),
    "client/side.cc": (source('"server/engine/e.h"'), "client may not include server/engine"),
    "server/scheduler/proto.cc": (source('"rivulet/v1/inference.pb.h"'), "stop at server/service"),
    "server/engine/grpc.cc": (source("<grpcpp/grpcpp.h>"), "stop at server/service"),
    "server/service/grpc.cc": (source("<grpcpp/grpcpp.h>"), "gRPC stops at server/rpc"),
    "server/engine/cuda.cc": (source("<cuda_runtime.h>"), "CUDA headers stop"),
    "kernels/base/cuda.h": (header("kernels/base/cuda.h", "#include <cuda_bf16.h>"), "CUDA headers stop"),
    "kernels/base/relative.cc": (source('"../base/a.h"'), "from the repository root"),
    "kernels/base/test_support.cc": (source('"tests/support.h"'), "only tests/"),
    "kernels/base/guard.h": (header("kernels/guard.h"), "no header guard RIVULET_KERNELS_BASE_GUARD_H_"),
    "kernels/base/width.h": (header("kernels/base/width.h", "uint8_t x;"), "without #include <cstdint>"),
    "kernels/base/once.h": (f"// {COPYRIGHT}\n#pragma once\n", "no header guard"),
    "kernels/base/long.cc": (source() + "\n" * MAX_LINES, "a file has fewer than"),
    "kernels/base/nobody.cc": ("int x;\n", "no line 'Copyright"),
}


def write_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_tree(root, GOOD)
        failures = [f"should pass: {violation}" for violation in check_tree(root)]
        write_tree(root, {path: text for path, (text, _) in BAD.items()})
        found = check_tree(root)
        for path, (_, reason) in BAD.items():
            if not any(line.startswith(path + ":") and reason in line for line in found):
                failures.append(f"not found: {path}: {reason}")
        failures += [f"the mixer {mixer} uses itself" for mixer in mixer_cycles()]
        if len(found) != len(BAD):
            failures.append(f"{len(BAD)} violations planted, {len(found)} reported")
    return failures


def main(arguments):
    if arguments == ["--self-test"]:
        problems = self_test()
    else:
        root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).parent.parent
        problems = check_tree(root.resolve())
    print("\n".join(problems) if problems else "check_layers: all good")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
