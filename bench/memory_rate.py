# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
"""What bench/memory_rate.cc wrote, a line for each sample: time, bytes read and written, bytes that passed L2, the share of the tensor cores'
cycles, blocks that began; with a bar for reads (#) and writes (+).

    python3 bench/memory_rate.py rate.csv --first 3500 --samples 80

Where reads fall, memory waits for kernels. The tensor cores tell products from other kernels.
"""
import argparse
import csv

CYCLES = 4 * 1755  # of a processor's tensor cores, a microsecond
SECTOR = 32        # bytes


def line(row):
    microseconds = (int(row["end"]) - int(row["start"])) / 1000
    rate = {name: float(value) / microseconds for name, value in row.items() if name not in ("start", "end")}
    read, written = rate["dram__bytes_read.sum"] / 1e6, rate["dram__bytes_write.sum"] / 1e6
    shown = f"{read:5.2f} {written:5.2f}"
    for name, scale in (("lts__t_sectors.sum", SECTOR / 1e6), ("TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg", 100 / CYCLES),
                        ("FE_B.TriageCompute.gr__ctas_launched_realtime.sum", 1)):
        if name in rate:
            shown += f" {rate[name] * scale:6.2f}"
    return shown + "  " + "#" * int(read * 15) + "+" * int(written * 15)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file")
    options.add_argument("--first", type=int, default=0, help="sample")
    options.add_argument("--samples", type=int, default=200)
    chosen = options.parse_args()
    with open(chosen.file, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[chosen.first:chosen.first + chosen.samples]
    print("   us   TB/s read, written, L2; % tensor cores; blocks")
    for row in rows:
        print(f"{(int(row['end']) - int(rows[0]['start'])) / 1000:7.1f} {line(row)}")


if __name__ == "__main__":
    main()
