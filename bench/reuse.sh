#!/bin/bash
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#
# What the prefix cache, forks and rewinds do on a server with the flags given, on a CPU or a GPU:
#
#   bench/reuse.sh prefix|forks BIN OUT SERVER-FLAG...         for example --model models/tales --device cuda
#
# prefix: both traces of rivulet-prefix-bench, sent again without a cache and with it, and as sessions.
# forks:  rivulet-fork-bench at LENGTHS (1024,16384,131072,1048576), then rewinds within one turn.
# OUT gets what is printed. Nothing else should run; the load stands before each part.
set -eu
what=$1 bin=$2 out=$3
shift 3

start() {  # start FLAG...: $pid and $address of a server
  log=$(mktemp)
  "$bin/rivulet-server" --listen 127.0.0.1:0 --http 127.0.0.1:0 "$@" >"$log" 2>&1 &
  pid=$!
  until address=$(grep -oE 'grpc listening on [^ ]+' "$log" | awk '{print $4}') && [ -n "$address" ]; do
    kill -0 "$pid" || { cat "$log"; exit 1; }
    sleep 0.1
  done
}
stop() {
  echo "server's processor time: $(awk -v hz="$(getconf CLK_TCK)" '{print ($14 + $15) / hz}' "/proc/$pid/stat") s"
  kill "$pid"
  wait "$pid" || true
}
trap 'kill "${pid:-0}" 2>/dev/null || true' EXIT

prefix() {
  for trace in agents chats; do
    for run in "off resend" "auto resend" "off session"; do
      read -r cache mode <<<"$run"
      echo "== $trace, $mode, --prefix-cache $cache, load $(cut -d' ' -f1 /proc/loadavg)"
      start --prefix-cache "$cache" "$@"
      "$bin/rivulet-prefix-bench" --server "$address" --trace "$trace" --mode "$mode"
      stop
    done
  done
}

forks() {
  echo "== forks, load $(cut -d' ' -f1 /proc/loadavg)"
  start "$@"
  "$bin/rivulet-fork-bench" --server "$address" --pid "$pid" --forks 10000 --tokens "${LENGTHS:-1024,16384,131072,1048576}"
  stop
  for borders in 0 auto; do
    echo "== rewinds within a turn, --keep-borders $borders, load $(cut -d' ' -f1 /proc/loadavg)"
    start --keep-borders "$borders" "$@"
    "$bin/rivulet-fork-bench" --server "$address" --pid "$pid" --within_turn --prompt=1024 --answer=1024
    stop
  done
}

exec > >(tee "$out")
"$what" "$@"
