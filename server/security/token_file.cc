// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/token_file.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/security/repeated_keys.h"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 64;

absl::Status Bad(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

absl::Status CheckFields(const Json& entry, const std::string& where,
                         std::initializer_list<const char*> known) {
  if (!entry.is_object()) return Bad(where, "give an object {...}");
  for (const auto& [key, value] : entry.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return Bad(where, absl::StrCat("unknown field \"", key, "\"; known are ",
                                   absl::StrJoin(known.begin(), known.end(), ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadString(const Json& entry, const std::string& where,
                                       const char* field) {
  const auto found = entry.find(field);
  if (found == entry.end() || !found->is_string()) {
    return Bad(where, absl::StrCat("give ", field, ", a string"));
  }
  return found->get<std::string>();
}

template <typename Number>
absl::Status ReadNumber(const Json& entry, const std::string& where, const char* field,
                        Number& number) {
  const auto found = entry.find(field);
  if (found == entry.end()) return absl::OkStatus();
  constexpr Number kMost = std::numeric_limits<Number>::max() / 4;
  if (!found->is_number_unsigned() || found->get<uint64_t>() < 1 ||
      found->get<uint64_t>() > kMost) {
    return Bad(where, absl::StrCat(field, ": give a whole number from 1 to ", kMost,
                                   ", or leave it out for no limit"));
  }
  number = found->get<Number>();
  return absl::OkStatus();
}

// It is a label of metrics and a part of log lines.
absl::Status CheckTenantName(const std::string& name, const std::string& where) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), fits)) {
    return absl::OkStatus();
  }
  return Bad(where, absl::StrCat("name: give 1 to ", kMaxNameBytes, " letters, digits and - _ ."));
}

absl::StatusOr<TokenFile::TenantEntry> ReadTenant(const Json& json, const std::string& where) {
  RIVULET_RETURN_IF_ERROR(CheckFields(
      json, where, {"name", "weight", "requests_per_minute", "tokens_per_minute", "max_requests"}));
  TokenFile::TenantEntry tenant;
  TenantLimits& limits = tenant.limits;
  RIVULET_ASSIGN_OR_RETURN(tenant.name, ReadString(json, where, "name"));
  RIVULET_RETURN_IF_ERROR(CheckTenantName(tenant.name, where));
  RIVULET_RETURN_IF_ERROR(ReadNumber(json, where, "weight", limits.weight));
  RIVULET_RETURN_IF_ERROR(
      ReadNumber(json, where, "requests_per_minute", limits.requests_per_minute));
  RIVULET_RETURN_IF_ERROR(ReadNumber(json, where, "tokens_per_minute", limits.tokens_per_minute));
  RIVULET_RETURN_IF_ERROR(ReadNumber(json, where, "max_requests", limits.max_requests));
  if (limits.weight > 1000) return Bad(where, "weight: give a number from 1 to 1000");
  return tenant;
}

absl::StatusOr<Scopes> ReadScopes(const Json& json, const std::string& where) {
  Scopes scopes;
  const auto list = json.find("scopes");
  if (list == json.end()) {
    scopes.Add(Scope::kGenerate);
    scopes.Add(Scope::kSessions);
    return scopes;
  }
  const auto bad = [&] {
    return Bad(where, absl::StrCat("scopes: give a list of ",
                                   absl::StrJoin(kScopeNames.begin(), kScopeNames.end(), ", ")));
  };
  if (!list->is_array()) return bad();
  for (const Json& name : *list) {
    const auto found = std::find(kScopeNames.begin(), kScopeNames.end(), name);
    if (found == kScopeNames.end()) return bad();
    scopes.Add(static_cast<Scope>(found - kScopeNames.begin()));
  }
  return scopes;
}

absl::StatusOr<Sha256Digest> ReadDigest(const Json& json, const std::string& where) {
  RIVULET_ASSIGN_OR_RETURN(const std::string text, ReadString(json, where, "sha256"));
  const bool hex =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
  Sha256Digest digest;
  if (!hex || text.size() != 2 * digest.size()) {
    return Bad(where, "sha256: give 64 hexadecimal digits");
  }
  const std::string bytes = absl::HexStringToBytes(text);
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

absl::Status ReadExpiry(const Json& json, const std::string& where, TokenFile::Token& token) {
  if (!json.contains("expires")) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const std::string text, ReadString(json, where, "expires"));
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return Bad(where, "expires: give a time as 2027-01-31T00:00:00Z");
  }
  token.expires = absl::ToChronoTime(time);
  return absl::OkStatus();
}

// What tokens and certificates have both: name, tenant, scopes.
template <typename Entry>
absl::Status ReadHolder(const Json& json, const std::string& where,
                        const std::map<std::string, size_t>& tenants, Entry& entry) {
  if (json.contains("name")) {
    RIVULET_ASSIGN_OR_RETURN(entry.name, ReadString(json, where, "name"));
    if (entry.name.size() > kMaxNameBytes) {
      return Bad(where, absl::StrCat("name: give at most ", kMaxNameBytes, " bytes"));
    }
  }
  RIVULET_ASSIGN_OR_RETURN(const std::string tenant, ReadString(json, where, "tenant"));
  const auto found = tenants.find(tenant);
  if (found == tenants.end()) {
    return Bad(where, absl::StrCat("tenant \"", tenant, "\" is not in tenants"));
  }
  entry.tenant = found->second;
  RIVULET_ASSIGN_OR_RETURN(entry.scopes, ReadScopes(json, where));
  return absl::OkStatus();
}

absl::StatusOr<TokenFile::Token> ReadToken(const Json& json, const std::string& where,
                                           const std::map<std::string, size_t>& tenants) {
  RIVULET_RETURN_IF_ERROR(
      CheckFields(json, where, {"name", "sha256", "tenant", "scopes", "expires"}));
  TokenFile::Token token;
  RIVULET_ASSIGN_OR_RETURN(token.digest, ReadDigest(json, where));
  RIVULET_RETURN_IF_ERROR(ReadHolder(json, where, tenants, token));
  RIVULET_RETURN_IF_ERROR(ReadExpiry(json, where, token));
  return token;
}

absl::StatusOr<TokenFile::Certificate> ReadCertificate(
    const Json& json, const std::string& where, const std::map<std::string, size_t>& tenants) {
  RIVULET_RETURN_IF_ERROR(
      CheckFields(json, where, {"name", "uri", "dns", "cn", "tenant", "scopes"}));
  TokenFile::Certificate certificate;
  for (const std::string kind : {"uri", "dns", "cn"}) {
    if (!json.contains(kind)) continue;
    if (!certificate.peer.empty()) return Bad(where, "give one of uri, dns and cn");
    RIVULET_ASSIGN_OR_RETURN(std::string text, ReadString(json, where, kind.c_str()));
    if (text.empty()) return Bad(where, absl::StrCat(kind, ": it is empty"));
    if (kind == "dns") absl::AsciiStrToLower(&text);
    certificate.peer = absl::StrCat(kind, ":", text);
  }
  if (certificate.peer.empty()) return Bad(where, "give one of uri, dns and cn");
  RIVULET_RETURN_IF_ERROR(ReadHolder(json, where, tenants, certificate));
  return certificate;
}

absl::StatusOr<Json> ReadList(const Json& file, const char* field, size_t most) {
  const auto list = file.find(field);
  if (list == file.end() || !list->is_array() || list->empty() || list->size() > most) {
    return Bad(field, absl::StrCat("give a list of 1 to ", most, " entries"));
  }
  return *list;
}

absl::Status CheckNoTwins(const TokenFile& file) {
  std::set<Sha256Digest> digests;
  for (size_t i = 0; i < file.tokens.size(); ++i) {
    if (digests.insert(file.tokens[i].digest).second) continue;
    return Bad(absl::StrCat("tokens[", i, "]"), "the sha256 is in the file already");
  }
  std::set<std::string> peers;
  for (size_t i = 0; i < file.certificates.size(); ++i) {
    if (peers.insert(file.certificates[i].peer).second) continue;
    return Bad(absl::StrCat("certificates[", i, "]"), "this name is in the file already");
  }
  return absl::OkStatus();
}

// `read` makes an entry of the list.
template <typename Entry, typename Read>
absl::Status ReadHolders(const Json& file, const char* field,
                         const std::map<std::string, size_t>& tenants, Read read,
                         std::vector<Entry>& entries) {
  RIVULET_ASSIGN_OR_RETURN(const Json list, ReadList(file, field, kMostTokens));
  for (const Json& json : list) {
    const std::string where = absl::StrCat(field, "[", entries.size(), "]");
    RIVULET_ASSIGN_OR_RETURN(Entry entry, read(json, where, tenants));
    entries.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

// Says where in the file a key is twice.
class RepeatedKey {
 public:
  // For each event of the parser.
  void See(int depth, Json::parse_event_t event, const Json& parsed) {
    const bool of_file = depth < kDepthOfEntry;
    if (event == Json::parse_event_t::object_start && depth == kDepthOfEntry) ++entries_;
    if (keys_.See(event, parsed)) {
      const std::string where =
          of_file ? "the file" : absl::StrCat(list_, "[", entries_ == 0 ? 0 : entries_ - 1, "]");
      status_.Update(Bad(where, absl::StrCat("the key \"", parsed.get<std::string>(),
                                             "\" is there twice; give it once")));
    }
    if (event != Json::parse_event_t::key || !of_file) return;
    list_ = parsed.get<std::string>();
    entries_ = 0;
  }
  // An error if a key was there twice.
  const absl::Status& status() const { return status_; }

 private:
  static constexpr int kDepthOfEntry = 2;  // the file, a list, an entry

  RepeatedKeys keys_;
  std::string list_;    // the last key of the file's own object
  size_t entries_ = 0;  // of it so far
  absl::Status status_;
};

absl::StatusOr<Json> ParseWithoutRepeatedKeys(std::string_view text) {
  RepeatedKey repeated;
  const auto see = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    repeated.See(depth, event, parsed);
    return true;
  };
  Json file = Json::parse(text, see, /*allow_exceptions=*/false);
  if (file.is_discarded()) return absl::InvalidArgumentError("it is not JSON");
  RIVULET_RETURN_IF_ERROR(repeated.status());
  return file;
}

}  // namespace

Sha256Digest Sha256(std::string_view bytes) {
  Sha256Digest digest;
  SHA256(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

absl::StatusOr<TokenFile> ParseTokenFile(std::string_view json) {
  RIVULET_ASSIGN_OR_RETURN(const Json file, ParseWithoutRepeatedKeys(json));
  RIVULET_RETURN_IF_ERROR(CheckFields(file, "the file", {"tenants", "tokens", "certificates"}));
  TokenFile parsed;
  RIVULET_ASSIGN_OR_RETURN(const Json tenants, ReadList(file, "tenants", kMostTenants));
  std::map<std::string, size_t> names;
  for (const Json& entry : tenants) {
    const std::string where = absl::StrCat("tenants[", names.size(), "]");
    RIVULET_ASSIGN_OR_RETURN(TokenFile::TenantEntry tenant, ReadTenant(entry, where));
    if (!names.emplace(tenant.name, names.size()).second) {
      return Bad(where, absl::StrCat("\"", tenant.name, "\" is in the file already"));
    }
    parsed.tenants.push_back(std::move(tenant));
  }
  const bool certificates = file.contains("certificates");
  if (certificates) {
    RIVULET_RETURN_IF_ERROR(
        ReadHolders(file, "certificates", names, &ReadCertificate, parsed.certificates));
  }
  if (!certificates || file.contains("tokens")) {
    RIVULET_RETURN_IF_ERROR(ReadHolders(file, "tokens", names, &ReadToken, parsed.tokens));
  }
  RIVULET_RETURN_IF_ERROR(CheckNoTwins(parsed));
  return parsed;
}

}  // namespace rivulet
