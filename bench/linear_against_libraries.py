# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What bit equality costs in a product y = x Wᵀ: Linear against the libraries' products, which sum in the order that is fastest.

    python3 bench/linear_against_libraries.py --rate build/release/bin/rivulet-linear-rate --threads 2 --json out.json

For tokens 1, 8, 64, 512 and square weights of 1024 and 4096, fp32 and bf16. The peers: PyTorch's linear (MKL or oneDNN, as it
chooses), the same with weights reordered beforehand for oneDNN, and NumPy's OpenBLAS (fp32). As in rivulet-linear-rate, calls rotate
over copies of the weights that take 512 MiB together. Needs PyTorch and NumPy; not part of the build.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

WIDTHS, TOKENS = (1024, 4096), (1, 8, 64, 512)


def median_seconds(call, copies, budget):
    seconds = []
    while sum(seconds) < budget or len(seconds) < 7:
        start = time.perf_counter()
        call(copies[len(seconds) % len(copies)])
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[2:])


def torch_products(torch, weights, tokens):
    """name -> (call of one copy, copies)."""
    x = torch.randn(tokens, weights[0].shape[1], dtype=weights[0].dtype)
    yield "torch", lambda w: torch.nn.functional.linear(x, w), weights
    try:
        ordered = [torch.ops.mkldnn._reorder_linear_weight(w, tokens) for w in weights]
        call = lambda w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")
        call(ordered[0])
    except Exception as error:  # a build without oneDNN, or a dtype that it does not take
        print("no reordered oneDNN product:", str(error)[:100])
        return
    yield "onednn", call, ordered


def time_libraries(budget):
    import numpy as np
    import torch
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rows = []
    for width in WIDTHS:
        for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            copies = (512 << 20) // (width * width * dtype.itemsize)
            weight = torch.randn(width, width)
            weights = [weight.to(dtype).clone() for _ in range(copies)]
            for tokens in TOKENS:
                row = {"tokens": tokens, "width": width, "dtype": name}
                with torch.no_grad():
                    for product, call, of in torch_products(torch, weights, tokens):
                        row[product] = median_seconds(call, of, budget)
                if name == "fp32":
                    x = np.random.default_rng(1).standard_normal((tokens, width), dtype=np.float32)
                    row["openblas"] = median_seconds(lambda w: x @ w.T, [w.numpy() for w in weights], budget)
                rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", required=True, help="rivulet-linear-rate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--json")
    a = parser.parse_args()
    ours = subprocess.run([a.rate, f"--threads={a.threads}", f"--seconds={a.seconds}"], check=True, capture_output=True, text=True).stdout
    ours = {(r["tokens"], r["width"], r["dtype"]): r["seconds"] for r in map(json.loads, ours.splitlines())}
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(a.threads)
    rows = time_libraries(a.seconds)
    print("| tokens x inputs x outputs | weights | Rivulet | torch | oneDNN, reordered | OpenBLAS | best library / Rivulet speed |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        row["rivulet"] = ours[row["tokens"], row["width"], row["dtype"]]
        flops = 2.0 * row["tokens"] * row["width"] ** 2
        cells = [f"{flops / row[k] / 1e9:.0f} GFLOP/s" if k in row else "" for k in ("rivulet", "torch", "onednn", "openblas")]
        row["ratio"] = row["rivulet"] / min(row[k] for k in ("torch", "onednn", "openblas") if k in row)
        print(f"| {row['tokens']} x {row['width']} x {row['width']} | {row['dtype']} | {' | '.join(cells)} | {row['ratio']:.2f} |")
    if a.json:
        with open(a.json, "w") as file:
            json.dump({"threads": a.threads, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
