// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/openai/input_items.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/http/http_message.h"
#include "server/session/session_table.h"

namespace rivulet::openai {
namespace {

constexpr uint32_t kDefaultLimit = 20;
constexpr uint32_t kMostItems = 100;

std::string TypeOf(const Json& item) {
  const auto type = item.find("type");
  return type == item.end() || !type->is_string() ? "message" : type->get<std::string>();
}

std::string NewIdOf(const std::string& type) {
  const char* const prefix = type == "message" ? "msg_" : type == "reasoning" ? "rs_" : "fc_";
  return prefix + MakeRandomId();
}

// A message's text becomes a part of it.
Json PartsOf(const Json& content, bool assistant) {
  if (!content.is_string()) return content;
  Json part = {{"type", assistant ? "output_text" : "input_text"}, {"text", content}};
  if (assistant) part["annotations"] = Json::array();
  return Json::array({std::move(part)});
}

InputItems::Item MakeItem(const Json& sent) {
  const std::string type = TypeOf(sent);
  Json item = {{"id", ""}, {"type", type}, {"status", "completed"}};
  for (const auto& [key, value] : sent.items()) {
    if (!value.is_null()) item[key] = value;
  }
  if (!item["id"].is_string() || item["id"].get<std::string>().empty()) item["id"] = NewIdOf(type);
  if (type == "message") item["content"] = PartsOf(item["content"], item["role"] == "assistant");
  return {item["id"].get<std::string>(), Dump(item)};
}

absl::StatusOr<size_t> LimitOf(std::string_view query) {
  uint32_t limit = kDefaultLimit;
  const std::optional<std::string> text = QueryValue(query, "limit");
  const bool read = !text.has_value() || absl::SimpleAtoi(*text, &limit);
  if (read && limit >= 1 && limit <= kMostItems) return limit;
  return FieldError("limit", absl::StrCat("it must be 1 to ", kMostItems));
}

// Of the items in the order asked for.
absl::StatusOr<std::vector<const InputItems::Item*>> InOrder(const InputItems& input,
                                                             std::string_view query) {
  std::vector<const InputItems::Item*> items;
  for (const InputItems::Item& item : input.items) items.push_back(&item);
  const std::string order = QueryValue(query, "order").value_or("desc");
  if (order != "desc" && order != "asc") return FieldError("order", "it is desc or asc");
  if (order == "desc") std::reverse(items.begin(), items.end());
  const std::optional<std::string> after = QueryValue(query, "after");
  if (!after.has_value() || after->empty()) return items;
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const auto* item) { return item->id == *after; });
  if (found == items.end()) return FieldError("after", "the response has no such item");
  items.erase(items.begin(), found + 1);
  return items;
}

}  // namespace

InputItems MakeInputItems(const Json& input) {
  InputItems made;
  if (input.is_string()) {
    made.items.push_back(MakeItem({{"role", "user"}, {"content", input}}));
  } else {
    for (const Json& item : input) made.items.push_back(MakeItem(item));
  }
  for (const auto& item : made.items)
    made.bytes += sizeof(item) + item.id.size() + item.json.size();
  return made;
}

absl::StatusOr<std::string> ListInputItems(const InputItems& input, std::string_view query) {
  RIVULET_ASSIGN_OR_RETURN(const size_t limit, LimitOf(query));
  RIVULET_ASSIGN_OR_RETURN(const auto items, InOrder(input, query));
  const size_t count = std::min(limit, items.size());
  std::string data;
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&data, i == 0 ? "" : ",", items[i]->json);
  const auto id = [&](size_t i) { return count == 0 ? Json(nullptr) : Json(items[i]->id); };
  return absl::StrCat(R"({"object":"list","data":[)", data, R"(],"first_id":)", Dump(id(0)),
                      R"(,"last_id":)", Dump(id(count - 1)), R"(,"has_more":)",
                      count < items.size() ? "true" : "false", "}");
}

}  // namespace rivulet::openai
