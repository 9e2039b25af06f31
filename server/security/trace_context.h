// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SECURITY_TRACE_CONTEXT_H_
#define RIVULET_SERVER_SECURITY_TRACE_CONTEXT_H_

#include <string>
#include <string_view>

namespace rivulet {

inline constexpr char kTraceParentHeader[] = "traceparent";

// The trace id of a W3C trace context (`traceparent`: version, trace id, parent id, flags, in
// lower-case hexadecimal), 32 digits. Empty if the header is not one, which the standard says to
// treat as if it were not there.
std::string TraceIdOf(std::string_view traceparent);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SECURITY_TRACE_CONTEXT_H_
