// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Structured log lines on stderr: time, level, event, then key=value fields (logfmt):
//
//   2026-01-31T12:00:00.123Z info request_finished request_id=a1b2 method=Generate tokens=17
//
// Over spdlog, which only log.cc includes. Threading: any thread. A line is written whole, or
// dropped and counted in a later line when stderr is a full pipe.
#ifndef RIVULET_SERVER_LOG_LOG_H_
#define RIVULET_SERVER_LOG_LOG_H_

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace rivulet {

// One key=value. Text with spaces, quotes or control characters is quoted and escaped.
struct LogField {
  LogField(std::string_view key, std::string_view text) : key(key), value(text) {}
  template <std::integral Number>
  LogField(std::string_view key, Number number) : key(key), value(std::to_string(number)) {}
  LogField(std::string_view key, double number);

  std::string_view key;
  std::string value;
};

void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {});
void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {});
void LogWarning(std::string_view event, std::initializer_list<LogField> fields = {});
void LogError(std::string_view event, std::initializer_list<LogField> fields = {});

// "debug", "info", "warning", "error" or "off". False, and nothing changes, for any other text.
bool SetLogLevel(std::string_view level);

std::string_view LogLevel();
// As SetLogLevel, while the server runs. Writes a line log_level_changed regardless of the two
// levels; `client` is the address that asked.
bool ChangeLogLevel(std::string_view level, std::string_view client);

}  // namespace rivulet

#endif  // RIVULET_SERVER_LOG_LOG_H_
