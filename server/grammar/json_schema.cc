// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/grammar/json_rules.h"
#include "server/grammar/regex_parser.h"

namespace rivulet {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongest = 128 << 10;
constexpr size_t kMostSchemas = 1 << 14;
constexpr size_t kMostAlternatives = 512;  // of oneOf: each is compared with each
constexpr size_t kLongestKey = 256;
constexpr size_t kMostPatternBytes = 8 << 10;  // of all patterns together
constexpr double kFurthestBound = 1e15;
constexpr int kDeepest = 64;
constexpr uint32_t kMostRepeats = 65535;

// What says nothing about which values are valid.
constexpr const char* kAnnotations[] = {
    "$schema",       "$id",      "$comment",     "$defs",           "$anchor",
    "definitions",   "title",    "description",  "default",         "examples",
    "deprecated",    "readOnly", "writeOnly",    "contentEncoding", "contentMediaType",
    "discriminator", "xml",      "externalDocs", "example",         "strict",
    "name"};

// The formats that are served; others are annotations, as the standard has it.
struct Format {
  const char* name;
  const char* regex;
};
constexpr Format kFormats[] = {
    {"date", R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8]))"},
    {"time", R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
    {"date-time",
     R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?)"
     R"((Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
    {"uuid", R"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"},
    {"ipv4", R"(((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"},
    {"email", R"([A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@[A-Za-z0-9]+(\.[A-Za-z0-9]+)*\.[A-Za-z]{2,})"},
    {"uri", R"([a-z][a-z0-9+.-]*://[A-Za-z0-9._~-]+(:\d{1,5})?(/[A-Za-z0-9._~-]*)*)"},
};

class Compiler {
 public:
  explicit Compiler(const Json& root) : root_(root), rules_(grammar_) {}

  absl::StatusOr<Grammar> Compile() {
    RIVULET_ASSIGN_OR_RETURN(Expression value, OfSchema(root_, "#", 0));
    grammar_.root = rules_.Rule("root", std::move(value)).rule;
    return std::move(grammar_);
  }

 private:
  static absl::Status Wrong(const std::string& place, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("JSON schema, ", place, ": ", what));
  }
  static absl::Status NotServed(const std::string& place, const std::string& what) {
    return absl::UnimplementedError(
        absl::StrCat("JSON schema, ", place, ": ", what, " is not served"));
  }

  // All keywords but annotations are among these.
  static absl::Status CheckKeywords(const Json& schema, const std::string& place,
                                    const std::vector<const char*>& served) {
    for (const auto& [key, value] : schema.items()) {
      const auto is_key = [&, &key = key](const char* other) { return key == other; };
      if (std::any_of(std::begin(kAnnotations), std::end(kAnnotations), is_key)) continue;
      if (std::any_of(served.begin(), served.end(), is_key)) continue;
      return NotServed(place, absl::StrCat("\"", key, "\" here"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Expression> OfSchema(const Json& schema, const std::string& place, int depth) {
    if (depth > kDeepest) return Wrong(place, "schemas are nested too deep");
    if (++schemas_ > kMostSchemas) return Wrong(place, "there are too many schemas");
    if (schema.is_boolean()) return schema.get<bool>() ? rules_.Value() : Choice({});
    if (!schema.is_object()) return Wrong(place, "a schema is an object or a boolean");
    if (schema.contains("$ref")) return OfReference(schema, place, depth);
    if (schema.contains("enum") || schema.contains("const")) return OfValues(schema, place);
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      if (schema.contains(key)) return OfSchemas(schema, key, place, depth);
    }
    return OfTypes(schema, place, depth);
  }

  absl::StatusOr<Expression> OfReference(const Json& schema, const std::string& place, int depth) {
    RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, {"$ref"}));
    if (!schema["$ref"].is_string()) return Wrong(place, "$ref is a text");
    const auto reference = schema["$ref"].get<std::string>();
    if (!reference.starts_with("#")) return NotServed(place, "a $ref to another document");
    const auto [entry, is_new] = references_.try_emplace(reference, 0);
    if (!is_new) return RuleCall(entry->second);
    const Json* target = nullptr;
    try {
      target = &root_.at(Json::json_pointer(reference.substr(1)));
    } catch (const nlohmann::json::exception&) {
      return Wrong(place, absl::StrCat("there is no ", reference));
    }
    // The rule first: its schema may refer to itself.
    const size_t rule = rules_.Rule(reference, EmptyText()).rule;
    references_[reference] = rule;
    RIVULET_ASSIGN_OR_RETURN(Expression expression, OfSchema(*target, reference, depth + 1));
    grammar_.rules[rule].expression = std::move(expression);
    return RuleCall(rule);
  }

  static bool HasType(const Json& value, const std::string& type) {
    if (type == "integer" && value.is_number_float()) {
      return std::floor(value.get<double>()) == value.get<double>();
    }
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    return type == "array" ? value.is_array() : value.is_object();
  }

  absl::StatusOr<Expression> OfValues(const Json& schema, const std::string& place) {
    RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, {"enum", "const", "type"}));
    Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
    if (!values.is_array()) return Wrong(place, "enum is an array");
    std::vector<std::string> types;
    if (schema.contains("type")) {
      RIVULET_ASSIGN_OR_RETURN(types, TypesOf(schema, place));
    }
    std::vector<std::string> texts;
    for (const Json& value : values) {
      const bool is_const = !schema.contains("const") || value == schema["const"];
      const bool is_typed = types.empty() || std::any_of(types.begin(), types.end(), [&](auto& t) {
                              return HasType(value, t);
                            });
      if (is_const && is_typed) texts.push_back(value.dump());
    }
    return Literals(std::move(texts));
  }

  // Of anyOf, oneOf and allOf.
  absl::StatusOr<Expression> OfSchemas(const Json& schema, const char* key,
                                       const std::string& place, int depth) {
    RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, {key}));
    const Json& parts = schema[key];
    if (!parts.is_array() || parts.empty()) return Wrong(place, absl::StrCat(key, " is empty"));
    if (std::string_view(key) == "allOf" && parts.size() > 1) {
      return NotServed(place, "allOf with several schemas");
    }
    if (std::string_view(key) == "oneOf" &&
        (parts.size() > kMostAlternatives || !AreDisjoint(parts))) {
      return NotServed(place, "oneOf whose schemas may accept the same value");
    }
    std::vector<Expression> choices;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string part_place = absl::StrCat(place, "/", key, "/", i);
      RIVULET_ASSIGN_OR_RETURN(Expression choice, OfSchema(parts[i], part_place, depth + 1));
      choices.push_back(std::move(choice));
    }
    return Choice(std::move(choices));
  }

  const Json& Resolved(const Json& schema) const {
    const Json* at = &schema;
    for (int i = 0; i < kDeepest && at->is_object() && at->contains("$ref"); ++i) {
      const Json& reference = (*at)["$ref"];
      if (!reference.is_string() || !reference.get<std::string>().starts_with("#")) return *at;
      try {
        at = &root_.at(Json::json_pointer(reference.get<std::string>().substr(1)));
      } catch (const nlohmann::json::exception&) {
        return *at;
      }
    }
    return *at;
  }

  // Whether no value is accepted by two of them, as far as their types and the constants of their
  // required properties say.
  bool AreDisjoint(const Json& parts) const {
    for (size_t i = 0; i < parts.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!AreDisjoint(Resolved(parts[i]), Resolved(parts[j]))) return false;
      }
    }
    return true;
  }

  bool AreDisjoint(const Json& a, const Json& b) const {
    if (!a.is_object() || !b.is_object()) return false;
    if (const Json x = ConstantsOf(a), y = ConstantsOf(b); !x.empty() && !y.empty()) {
      // Without the order of keys.
      return std::none_of(x.begin(), x.end(), [&](const Json& value) {
        return std::any_of(y.begin(), y.end(), [&](const Json& other) {
          return nlohmann::json(value) == nlohmann::json(other);
        });
      });
    }
    if (!a.contains("type") || !b.contains("type")) return false;
    const Json &x = a["type"], &y = b["type"];
    if (!x.is_string() || !y.is_string()) return false;
    const auto is_number = [](const Json& type) { return type == "number" || type == "integer"; };
    if (x != y) return !is_number(x) || !is_number(y);
    return x == "object" && HaveDisjointProperties(a, b);
  }

  bool HaveDisjointProperties(const Json& a, const Json& b) const {
    if (!a.contains("properties") || !b.contains("properties")) return false;
    for (const auto& [key, value] : a["properties"].items()) {
      if (!Requires(a, key) || !Requires(b, key) || !b["properties"].contains(key)) continue;
      const Json& other = Resolved(b["properties"][key]);
      const Json& one = Resolved(value);
      if (!ConstantsOf(one).empty() && !ConstantsOf(other).empty() && AreDisjoint(one, other)) {
        return true;
      }
    }
    return false;
  }

  static Json ConstantsOf(const Json& schema) {
    if (!schema.is_object()) return Json::array();
    if (schema.contains("const")) return Json::array({schema["const"]});
    return schema.contains("enum") && schema["enum"].is_array() ? schema["enum"] : Json::array();
  }

  static bool Requires(const Json& schema, const std::string& key) {
    if (!schema.contains("required") || !schema["required"].is_array()) return false;
    const Json& required = schema["required"];
    return std::find(required.begin(), required.end(), Json(key)) != required.end();
  }

  static absl::StatusOr<std::vector<std::string>> TypesOf(const Json& schema,
                                                          const std::string& place) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    std::vector<std::string> names;
    for (const Json& type : types) {
      constexpr const char* kTypes[] = {"object",  "array",   "string", "number",
                                        "integer", "boolean", "null"};
      const bool known = std::any_of(std::begin(kTypes), std::end(kTypes),
                                     [&](const char* name) { return type == name; });
      if (!known) return Wrong(place, absl::StrCat("there is no type ", type.dump()));
      const auto name = type.get<std::string>();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  // The type that the keywords speak of, where there is no "type".
  static std::string TypeByKeywords(const Json& schema) {
    const auto has = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const char* key) { return schema.contains(key); });
    };
    if (has({"properties", "required", "additionalProperties"})) return "object";
    if (has({"items", "prefixItems", "minItems", "maxItems"})) return "array";
    if (has({"pattern", "minLength", "maxLength", "format"})) return "string";
    if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) return "number";
    return "";
  }

  absl::StatusOr<Expression> OfTypes(const Json& schema, const std::string& place, int depth) {
    if (!schema.contains("type")) {
      const std::string type = TypeByKeywords(schema);
      if (!type.empty()) return OfType(schema, type, place, depth);
      RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, {}));
      return rules_.Value();
    }
    RIVULET_ASSIGN_OR_RETURN(const std::vector<std::string> types, TypesOf(schema, place));
    if (types.size() == 1) return OfType(schema, types[0], place, depth);
    // Each type takes its own keywords; those of no type in the list are refused.
    std::vector<const char*> served = {"type"};
    std::vector<Expression> choices;
    for (const std::string& type : types) {
      Json own = Json::object();
      for (const char* key : KeywordsOf(type)) {
        served.push_back(key);
        if (schema.contains(key)) own[key] = schema[key];
      }
      RIVULET_ASSIGN_OR_RETURN(Expression choice, OfType(own, type, place, depth));
      choices.push_back(std::move(choice));
    }
    RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, served));
    return Choice(std::move(choices));
  }

  static std::vector<const char*> KeywordsOf(const std::string& type) {
    if (type == "object") return {"type", "properties", "required", "additionalProperties"};
    if (type == "array") return {"type", "items", "prefixItems", "minItems", "maxItems"};
    if (type == "string") return {"type", "pattern", "minLength", "maxLength", "format"};
    if (type == "number" || type == "integer") {
      return {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    }
    return {"type"};
  }

  absl::StatusOr<Expression> OfType(const Json& schema, const std::string& type,
                                    const std::string& place, int depth) {
    RIVULET_RETURN_IF_ERROR(CheckKeywords(schema, place, KeywordsOf(type)));
    if (type == "object") return OfObject(schema, place, depth);
    if (type == "array") return OfArray(schema, place, depth);
    if (type == "string") return OfString(schema, place);
    if (type == "integer") return OfInteger(schema, place);
    if (type == "number") return OfNumber(schema, place);
    if (type == "null") return Literal("null");
    return Choice({Literal("true"), Literal("false")});
  }

  static absl::StatusOr<uint32_t> Count(const Json& schema, const char* key, uint32_t otherwise,
                                        const std::string& place) {
    if (!schema.contains(key)) return otherwise;
    const Json& value = schema[key];
    if (!value.is_number_unsigned()) return Wrong(place, absl::StrCat(key, " is no count"));
    if (value.get<uint64_t>() > kMostRepeats) {
      return NotServed(place, absl::StrCat(key, " of more than ", kMostRepeats));
    }
    return value.get<uint32_t>();
  }

  absl::StatusOr<Expression> OfString(const Json& schema, const std::string& place) {
    RIVULET_ASSIGN_OR_RETURN(const uint32_t least, Count(schema, "minLength", 0, place));
    RIVULET_ASSIGN_OR_RETURN(const uint32_t most,
                             Count(schema, "maxLength", Expression::kUnbounded, place));
    const bool bounded = least > 0 || most != Expression::kUnbounded;
    if (schema.contains("pattern")) {
      if (bounded) return NotServed(place, "pattern beside minLength or maxLength");
      if (!schema["pattern"].is_string()) return Wrong(place, "pattern is a text");
      return OfPattern(schema["pattern"].get<std::string>(), true, place);
    }
    for (const Format& format : kFormats) {
      if (!schema.contains("format") || schema["format"] != format.name) continue;
      if (bounded) return NotServed(place, "format beside minLength or maxLength");
      return OfPattern(format.regex, false, place);
    }
    if (!bounded) return rules_.String();
    if (least > most) return Choice({});
    return Sequence({Literal("\""), Repeat(rules_.Character(), least, most), Literal("\"")});
  }

  absl::StatusOr<Expression> OfPattern(const std::string& regex, bool search,
                                       const std::string& place) {
    pattern_bytes_ += regex.size();
    if (pattern_bytes_ > kMostPatternBytes) {
      return NotServed(place, absl::StrCat("more than ", kMostPatternBytes, " bytes of patterns"));
    }
    auto characters = ParseRegex(regex, {search, StringCharacter});
    if (!characters.ok()) {
      return absl::Status(characters.status().code(),
                          absl::StrCat("JSON schema, ", place, ": the pattern ", regex, ": ",
                                       characters.status().message()));
    }
    return Sequence({Literal("\""), *std::move(characters), Literal("\"")});
  }

  // What the keywords bound, and no more than we write.
  static absl::StatusOr<NumberBounds> BoundsOf(const Json& schema, const std::string& place) {
    NumberBounds bounds;
    bool set[2] = {};
    for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      if (!schema.contains(key)) continue;
      if (!schema[key].is_number()) return Wrong(place, absl::StrCat(key, " is not a number"));
      const auto value = schema[key].get<double>();
      const bool excludes = key[0] == 'e', is_least = key[excludes ? 10 : 1] == 'i';
      double& bound = is_least ? bounds.least : bounds.most;
      bool& without = is_least ? bounds.without_least : bounds.without_most;
      if (std::abs(value) > kFurthestBound) {
        const bool says_nothing = is_least == (value < 0);
        if (says_nothing) continue;
        return NotServed(place, absl::StrCat(key, " beyond ", kFurthestBound));
      }
      const bool looser = is_least ? value < bound : value > bound;
      if (looser && set[is_least ? 0 : 1]) continue;
      without = value == bound ? without || excludes : excludes;
      bound = value;
      set[is_least ? 0 : 1] = true;
    }
    return bounds;
  }

  static bool HasBound(const Json& schema, const char* name) {
    return std::any_of(schema.items().begin(), schema.items().end(), [&](const auto& item) {
      return item.key().find(name) != std::string::npos;
    });
  }
  static bool HasBounds(const Json& schema) {
    return HasBound(schema, "inimum") || HasBound(schema, "aximum");
  }

  absl::StatusOr<Expression> OfInteger(const Json& schema, const std::string& place) {
    if (!HasBounds(schema)) return rules_.Integer();
    RIVULET_ASSIGN_OR_RETURN(const NumberBounds bounds, BoundsOf(schema, place));
    constexpr auto kFurthest = static_cast<int64_t>(kFurthestBound);
    const bool from = HasBound(schema, "inimum"), to = HasBound(schema, "aximum");
    int64_t least = from ? static_cast<int64_t>(std::ceil(bounds.least)) : -kFurthest;
    int64_t most = to ? static_cast<int64_t>(std::floor(bounds.most)) : kFurthest;
    if (bounds.without_least && static_cast<double>(least) == bounds.least) ++least;
    if (bounds.without_most && static_cast<double>(most) == bounds.most) --most;
    return least > most ? Choice({}) : IntegerBetween(least, most);
  }

  absl::StatusOr<Expression> OfNumber(const Json& schema, const std::string& place) {
    if (!HasBounds(schema)) return rules_.Number();
    RIVULET_ASSIGN_OR_RETURN(const NumberBounds bounds, BoundsOf(schema, place));
    if (bounds.least < bounds.most && std::ceil(bounds.least) > std::floor(bounds.most)) {
      return NotServed(place, "bounds between which no integer lies");
    }
    return NumberBetween(bounds);
  }

  absl::StatusOr<Expression> OfArray(const Json& schema, const std::string& place, int depth) {
    RIVULET_ASSIGN_OR_RETURN(uint32_t least, Count(schema, "minItems", 0, place));
    RIVULET_ASSIGN_OR_RETURN(uint32_t most,
                             Count(schema, "maxItems", Expression::kUnbounded, place));
    if (least > most) return Choice({});
    std::vector<Expression> first;
    if (schema.contains("prefixItems")) {
      if (!schema["prefixItems"].is_array()) return Wrong(place, "prefixItems is an array");
      for (size_t i = 0; i < schema["prefixItems"].size() && first.size() < most; ++i) {
        RIVULET_ASSIGN_OR_RETURN(
            Expression item,
            OfSchema(schema["prefixItems"][i], absl::StrCat(place, "/prefixItems/", i), depth + 1));
        first.push_back(rules_.Rule("item", std::move(item)));
      }
    }
    Expression items = rules_.Value();
    if (schema.contains("items")) {
      RIVULET_ASSIGN_OR_RETURN(items,
                               OfSchema(schema["items"], absl::StrCat(place, "/items"), depth + 1));
      items = rules_.Rule("item", std::move(items));
    }
    return rules_.Bracketed('[', Items(first, items, least, most), ']');
  }

  // `first`, then `items` as often as the bounds of all allow. All of `first` must come where
  // there are no bounds: arrays without them would be valid, but are hardly what is meant.
  Expression Items(std::vector<Expression> first, const Expression& items, uint32_t least,
                   uint32_t most) {
    const Expression next = rules_.Rule("next item", Sequence({rules_.Comma(), items}));
    const auto count = static_cast<uint32_t>(first.size());
    const uint32_t more = least > count ? least - count : 0;
    const uint32_t room = most == Expression::kUnbounded ? most : most - count;
    if (count == 0) {
      if (most == 0) return EmptyText();
      const uint32_t others = most == Expression::kUnbounded ? most : most - 1;
      Expression all = Sequence({items, Repeat(next, least > 0 ? least - 1 : 0, others)});
      return least == 0 ? Optional(std::move(all)) : all;
    }
    std::vector<Expression> parts;
    for (Expression& part : first) {
      if (!parts.empty()) parts.push_back(rules_.Comma());
      parts.push_back(std::move(part));
    }
    parts.push_back(Repeat(next, more, room));
    return Sequence(std::move(parts));
  }

  struct Member {
    Expression expression;
    bool required = false;
  };

  absl::StatusOr<Expression> OfObject(const Json& schema, const std::string& place, int depth) {
    const Json properties =
        schema.contains("properties") ? schema["properties"] : Json(Json::object());
    const Json required = schema.contains("required") ? schema["required"] : Json(Json::array());
    if (!properties.is_object()) return Wrong(place, "properties is an object");
    if (!required.is_array()) return Wrong(place, "required is an array");
    const Json additional = schema.contains("additionalProperties") ? schema["additionalProperties"]
                                                                    : Json(properties.empty());
    if (properties.empty() && required.empty() && additional == true) return rules_.Object();
    absl::flat_hash_set<std::string> must;
    for (const Json& key : required) {
      if (!key.is_string()) return Wrong(place, "required has texts");
      must.insert(key.get<std::string>());
    }
    std::vector<Member> members;
    std::vector<std::string> keys;
    for (const auto& [key, value] : properties.items()) {
      const std::string value_place = absl::StrCat(place, "/properties/", key);
      RIVULET_ASSIGN_OR_RETURN(Expression expression, OfSchema(value, value_place, depth + 1));
      members.push_back({NewMember(key, std::move(expression)), must.erase(key) > 0});
      keys.push_back(key);
    }
    for (const Json& listed : required) {
      const auto key = listed.get<std::string>();
      if (must.erase(key) == 0) continue;
      // Not among the properties: it is an additional one that must come.
      const Json& schema_of_key = schema.contains("additionalProperties") ? additional : Json(true);
      RIVULET_ASSIGN_OR_RETURN(Expression expression,
                               OfSchema(schema_of_key, place + "/additionalProperties", depth + 1));
      members.push_back({NewMember(key, std::move(expression)), true});
      keys.push_back(key);
    }
    RIVULET_ASSIGN_OR_RETURN(Expression others, Additional(additional, keys, place, depth));
    return rules_.Bracketed('{', Members(std::move(members), others), '}');
  }

  Expression NewMember(const std::string& key, Expression value) {
    return Sequence({Literal(Json(key).dump()), rules_.Space(), Literal(":"), rules_.Space(),
                     std::move(value)});
  }

  // A member with another key than these; matches nothing if there must be none.
  absl::StatusOr<Expression> Additional(const Json& schema, const std::vector<std::string>& keys,
                                        const std::string& place, int depth) {
    if (schema == false) return Choice({});
    for (const std::string& key : keys) {
      if (key.size() <= kLongestKey) continue;
      return NotServed(place, absl::StrCat("a key of more than ", kLongestKey,
                                           " bytes beside additionalProperties"));
    }
    RIVULET_ASSIGN_OR_RETURN(Expression value,
                             OfSchema(schema, place + "/additionalProperties", depth + 1));
    Expression key = keys.empty() ? rules_.String() : rules_.KeyOtherThan(keys);
    return rules_.Rule("additional", Sequence({std::move(key), rules_.Space(), Literal(":"),
                                               rules_.Space(), std::move(value)}));
  }

  // The members in order, with commas between those that come. Rules from the last to the first:
  // `next` is one of the members from there on with all that follows it, `behind` what may follow
  // a member. Each member and each comma is there once, so that n optional members take O(n) nodes,
  // and a text is in one place of the grammar for each key that may come, and in one before a
  // comma.
  Expression Members(std::vector<Member> members, const Expression& others) {
    Expression more = Repeat(Sequence({rules_.Comma(), others}), 0, Expression::kUnbounded);
    Expression next = rules_.Rule("members", Sequence({others, more}));
    Expression behind = rules_.Rule("more members", std::move(more));
    bool may_end = true;
    for (size_t i = members.size(); i-- > 0;) {
      std::vector<Expression> choices;
      choices.push_back(Sequence({std::move(members[i].expression), std::move(behind)}));
      if (!members[i].required) choices.push_back(std::move(next));
      may_end = may_end && !members[i].required;
      next = rules_.Rule("members", Choice(std::move(choices)));
      Expression later = Sequence({rules_.Comma(), next});
      behind = rules_.Rule("more members", may_end ? Optional(std::move(later)) : std::move(later));
    }
    return may_end ? Optional(std::move(next)) : next;
  }

  const Json& root_;
  Grammar grammar_;
  JsonRules rules_;
  absl::flat_hash_map<std::string, size_t> references_;
  size_t schemas_ = 0, pattern_bytes_ = 0;
};

// Whether JSON text nests deeper than Compiler looks into it, brackets in texts included.
bool NestsTooDeep(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_text && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      in_text = !in_text;
    else if (!in_text && (text[i] == '{' || text[i] == '['))
      deepest = std::max(deepest, ++depth);
    else if (!in_text && (text[i] == '}' || text[i] == ']'))
      --depth;
  }
  return deepest > 4 * kDeepest;
}

}  // namespace

absl::StatusOr<Grammar> ParseJsonSchema(std::string_view schema) {
  if (schema.size() > kLongest) {
    return absl::InvalidArgumentError(
        absl::StrCat("a JSON schema of ", schema.size(), " bytes: at most ", kLongest));
  }
  if (NestsTooDeep(schema)) return absl::InvalidArgumentError("the JSON schema nests too deep");
  const Json root = Json::parse(schema, nullptr, false);
  if (root.is_discarded()) return absl::InvalidArgumentError("the JSON schema is not JSON");
  return Compiler(root).Compile();
}

Grammar AnyJsonObject() {
  Grammar grammar;
  JsonRules rules(grammar);
  const Expression object = rules.Object();
  grammar.root = object.rule;
  return grammar;
}

}  // namespace rivulet
