// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/trace_context.h"

#include <algorithm>
#include <cstddef>

namespace rivulet {
namespace {

// 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
constexpr size_t kVersionBytes = 2;
constexpr size_t kTraceBytes = 32;
constexpr size_t kParentBytes = 16;
constexpr size_t kFlagBytes = 2;
constexpr size_t kBytes = kVersionBytes + 1 + kTraceBytes + 1 + kParentBytes + 1 + kFlagBytes;

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

}  // namespace

std::string TraceIdOf(std::string_view traceparent) {
  if (traceparent.size() < kBytes) return "";
  const std::string_view version = traceparent.substr(0, kVersionBytes);
  const std::string_view trace = traceparent.substr(kVersionBytes + 1, kTraceBytes);
  const size_t parent_at = kVersionBytes + 1 + kTraceBytes + 1;
  const std::string_view parent = traceparent.substr(parent_at, kParentBytes);
  const std::string_view flags = traceparent.substr(parent_at + kParentBytes + 1, kFlagBytes);
  const bool dashes = traceparent[kVersionBytes] == '-' && traceparent[parent_at - 1] == '-' &&
                      traceparent[parent_at + kParentBytes] == '-';
  // Later versions may say more after a dash.
  const bool longer = traceparent.size() > kBytes;
  const bool ends = !longer || (version != "00" && traceparent[kBytes] == '-');
  const bool valid = dashes && ends && IsHex(version) && version != "ff" && IsHex(trace) &&
                     !IsZero(trace) && IsHex(parent) && !IsZero(parent) && IsHex(flags);
  return valid ? std::string(trace) : "";
}

}  // namespace rivulet
