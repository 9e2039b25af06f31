// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/log/log.h"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "kernels/base/mutex.h"
#include "kernels/base/utf8.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace rivulet {
namespace {

spdlog::logger& Logger() {
  // Never destroyed: a thread may log while the process exits.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("rivulet", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %l %v", spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

// Writes to the same place, at any level of Logger.
spdlog::logger& UnfilteredLogger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger(Logger());
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *logger;
}

// No control character, whether of ASCII or of those that terminals know beside (C1), nor a byte
// that is not UTF-8: readers of logs may take none of these.
bool IsPlain(const Utf8Character& c) {
  return c.valid && c.code >= ' ' && (c.code < 0x7f || c.code > 0x9f);
}

bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  while (!text.empty()) {
    const Utf8Character c = FirstUtf8Character(text);
    if (!IsPlain(c) || c.code == ' ' || c.code == '"' || c.code == '=' || c.code == '\\')
      return true;
    text.remove_prefix(c.bytes);
  }
  return false;
}

void AppendEscaped(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) {
    char escape[8];
    std::snprintf(escape, sizeof(escape), "\\x%02x", static_cast<unsigned char>(byte));
    out += byte == '\n' ? "\\n" : escape;
  }
}

void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const Utf8Character c = FirstUtf8Character(text);
    if (!IsPlain(c)) {
      AppendEscaped(text.substr(0, c.bytes), out);
    } else {
      if (c.code == '"' || c.code == '\\') out += '\\';
      out += text.substr(0, c.bytes);
    }
    text.remove_prefix(c.bytes);
  }
  out += '"';
}

std::string FormatLogLine(std::string_view event, std::initializer_list<LogField> fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (NeedsQuotes(field.value)) {
      AppendQuoted(field.value, line);
    } else {
      line += field.value;
    }
  }
  return line;
}

// Together with the time, less than a pipe with room takes without blocking (PIPE_BUF).
constexpr size_t kLongestLine = 3900;

// False when a write would block: a reader of stderr that hangs must not stop the server.
bool StderrHasRoom() {
  pollfd descriptor = {STDERR_FILENO, POLLOUT, 0};
  return poll(&descriptor, 1, 0) != 0;  // errors too: then the write fails at once
}

void Log(spdlog::level::level_enum level, std::string_view event,
         std::initializer_list<LogField> fields, spdlog::logger& logger = Logger()) {
  if (!logger.should_log(level)) return;
  std::string line = FormatLogLine(event, fields);
  line.resize(ValidUtf8Length(std::string_view(line).substr(0, kLongestLine)));
  static Mutex* const mutex = new Mutex;  // never destroyed, as the logger
  static uint64_t dropped = 0;
  MutexLock lock(mutex);
  if (!StderrHasRoom()) {
    ++dropped;
    return;
  }
  if (dropped > 0) line += " lines_dropped_before=" + std::to_string(std::exchange(dropped, 0));
  logger.log(level, spdlog::string_view_t(line));
}

}  // namespace

LogField::LogField(std::string_view key, double number) : key(key) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  value = text;
}

void LogDebug(std::string_view event, std::initializer_list<LogField> fields) {
  Log(spdlog::level::debug, event, fields);
}
void LogInfo(std::string_view event, std::initializer_list<LogField> fields) {
  Log(spdlog::level::info, event, fields);
}
void LogWarning(std::string_view event, std::initializer_list<LogField> fields) {
  Log(spdlog::level::warn, event, fields);
}
void LogError(std::string_view event, std::initializer_list<LogField> fields) {
  Log(spdlog::level::err, event, fields);
}

bool SetLogLevel(std::string_view level) {
  if (level != "debug" && level != "info" && level != "warning" && level != "error" &&
      level != "off") {
    return false;
  }
  Logger().set_level(spdlog::level::from_str(std::string(level)));
  return true;
}

std::string_view LogLevel() {
  const auto name = spdlog::level::to_string_view(Logger().level());
  return {name.data(), name.size()};
}

bool ChangeLogLevel(std::string_view level, std::string_view client) {
  const std::string_view before = LogLevel();
  if (!SetLogLevel(level)) return false;
  Log(spdlog::level::info, "log_level_changed",
      {{"from", before}, {"to", level}, {"client", client}}, UnfilteredLogger());
  return true;
}

}  // namespace rivulet
