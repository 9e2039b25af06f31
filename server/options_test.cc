// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/options.h"

#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string Error(const std::vector<std::string>& arguments) {
  const auto options = ParseOptions(arguments);
  return options.ok() ? "no error" : std::string(options.status().message());
}

std::string WriteConfig(const std::string& text) {
  const std::string path = TestDirectory() + "/config.json";
  std::ofstream(path) << text;
  return path;
}

TEST(OptionsTest, DefaultsAndBothWaysToWriteAFlag) {
  const auto options =
      ParseOptions({"--model", "m", "--listen=[::1]:0", "--state-memory", "1.5GiB"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model, "m");
  EXPECT_EQ(options->listen.host, "::1");
  EXPECT_EQ(options->listen.port, 0);
  EXPECT_EQ(options->http.port, 8591);
  EXPECT_EQ(options->state_memory, 3u << 29);
  EXPECT_GE(options->threads, 1u);
  EXPECT_FALSE(options->weight_dtype.has_value());
}

TEST(OptionsTest, PrefixCacheIsAutoOffOrBytes) {
  const auto read = [](const std::string& flag) {
    return ParseOptions({"--model=m", flag})->prefix_cache;
  };
  EXPECT_EQ(read("--prefix-cache=auto"), std::nullopt);
  EXPECT_EQ(read("--prefix-cache=off"), 0u);
  EXPECT_EQ(read("--prefix-cache=2MiB"), 2u << 20);
}

TEST(OptionsTest, CommandLineWinsOverConfig) {
  const std::string path =
      WriteConfig(R"({"model": "c", "max-queue": 7, "dtype": "bf16", "state-memory": "64KiB"})");
  const auto options = ParseOptions({"--config", path, "--max-queue=9"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model, "c");
  EXPECT_EQ(options->max_queue, 9u);
  EXPECT_EQ(options->weight_dtype, DType::kBFloat16);
  EXPECT_EQ(options->state_memory, 65536u);
}

TEST(OptionsTest, ErrorsNameFlagValueAndRemedyInOneLine) {
  const std::pair<std::vector<std::string>, std::vector<std::string>> cases[] = {
      {{}, {"--model"}},
      {{"--model"}, {"--model", "DIR"}},
      {{"--modle=x"}, {"modle", "--model"}},
      {{"tales"}, {"tales"}},
      {{"--model=m", "--threads=many"}, {"--threads", "many"}},
      {{"--model=m", "--threads=2000"}, {"2000", "1024"}},
      {{"--model=m", "--state-memory=12XB"}, {"--state-memory", "12XB", "GiB"}},
      {{"--model=m", "--state-memory=-1"}, {"--state-memory", "-1"}},
      {{"--model=m", "--prefix-cache=much"}, {"--prefix-cache", "much", "GiB", "auto", "off"}},
      {{"--model=m", "--listen=50051"}, {"--listen", "HOST:PORT"}},
      {{"--model=m", "--listen=h:99999"}, {"99999", "65535"}},
      {{"--model=m", "--listen=::1:50051"}, {"--listen"}},
      {{"--model=m", "--dtype=fp4"}, {"fp4", "auto, fp32, bf16, fp8"}},
      {{"--model=m", "--device=tpu"}, {"tpu", "cpu, cuda"}},
      {{"--model=m", "--device=cuda"}, {"--device=\"cuda\"", "--device=cpu"}},
      {{"--model=m", "--max-queue=0"}, {"--max-queue=\"0\"", "from 1"}},
      {{"--model=m", "--config=/none"}, {"/none"}},
  };
  for (const auto& [arguments, expected] : cases) {
    const std::string error = Error(arguments);
    for (const std::string& part : expected) EXPECT_THAT(error, HasSubstr(part));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
}

TEST(OptionsTest, NumbersAreDecimals) {
  const auto options = ParseOptions({"--model=m", "--max-queue=010", "--listen=h:090", "--insecure",
                                     "--keep-borders=010", "--state-memory=010KiB"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->max_queue, 10u);
  EXPECT_EQ(options->listen.port, 90);
  EXPECT_EQ(options->keep_borders, 10u);
  EXPECT_EQ(options->state_memory, 10u << 10);
  for (const std::string flag : {"--max-queue", "--keep-borders", "--state-memory",
                                 "--prefix-cache", "--max-session-tokens"}) {
    for (const std::string text : {"0x10", "+8", " 8", "8 ", "-8", "inf", "1e40"}) {
      EXPECT_THAT(Error({"--model=m", flag + "=" + text}), HasSubstr(flag + "=\"" + text + "\""));
    }
  }
  EXPECT_THAT(Error({"--model=m", "--http=localhost:+80"}), HasSubstr("--http"));
  EXPECT_THAT(Error({"--model=m", "--max-queue=4294967296"}), HasSubstr("4294967295"));
  EXPECT_THAT(Error({"--model=m", "--state-memory=0.5"}), HasSubstr("--state-memory"));
}

TEST(OptionsTest, ThePortsHaveDifferentAddresses) {
  EXPECT_THAT(Error({"--model=m", "--listen=[::1]:80", "--http=[::1]:80"}),
              HasSubstr("--http: --listen has the same address, with port 80"));
  EXPECT_TRUE(ParseOptions({"--model=m", "--listen=127.0.0.1:80", "--http=[::1]:80"}).ok());
}

TEST(OptionsTest, OtherMachinesNeedTlsOrAWord) {
  for (const std::string host : {"127.0.0.1", "127.8.9.1", "localhost", "[::1]"}) {
    EXPECT_TRUE(ParseOptions({"--model=m", "--listen", host + ":0", "--http", host + ":0"}).ok());
  }
  for (const std::string flag : {"--listen", "--http"}) {
    for (const std::string host : {"0.0.0.0", "[::]", "10.0.0.1", "example.org", "127.example.org",
                                   "[::ffff:10.0.0.1]", "localhost.example.org"}) {
      EXPECT_THAT(Error({"--model=m", flag, host + ":0"}),
                  AllOf(HasSubstr(flag), HasSubstr("--tls-cert"), HasSubstr("--insecure")))
          << host;
    }
    EXPECT_TRUE(ParseOptions({"--model=m", flag, "0.0.0.0:0", "--insecure"}).ok());
    EXPECT_TRUE(ParseOptions({"--model=m", flag, "0.0.0.0:0", "--tls-cert=c", "--tls-key=k"}).ok());
  }
}

TEST(OptionsTest, HttpHostsAreNames) {
  const auto hosts = [](const std::string& text) {
    const auto options = ParseOptions({"--model=m", "--http-host=" + text});
    EXPECT_TRUE(options.ok()) << options.status();
    return options.ok() ? options->http_hosts : std::vector<std::string>();
  };
  EXPECT_TRUE(ParseOptions({"--model=m"})->http_hosts.empty());
  EXPECT_THAT(hosts("a.lan,,B"), testing::ElementsAre("a.lan", "B"));
  for (const std::string wrong : {"a:1", "http://a", "*.lan", "a, b"}) {
    EXPECT_THAT(Error({"--model=m", "--http-host=" + wrong}), HasSubstr("--http-host"));
  }
}

TEST(OptionsTest, TlsFlagsBelongTogether) {
  EXPECT_THAT(Error({"--model=m", "--tls-cert=c"}), HasSubstr("--tls-key"));
  EXPECT_THAT(Error({"--model=m", "--tls-key=k"}), HasSubstr("--tls-cert"));
  EXPECT_THAT(Error({"--model=m", "--tls-client-ca=a"}), HasSubstr("--tls-cert"));
  for (const std::string value : {"maybe", "", "{}"}) {
    EXPECT_THAT(Error({"--model=m", "--insecure=" + value}),
                HasSubstr("--insecure=\"" + value + "\": give true or false"));
  }
  EXPECT_FALSE(ParseOptions({"--model=m", "--insecure=false"})->insecure);
  EXPECT_FALSE(ParseOptions({"--model=m"})->insecure);
  const std::string config = WriteConfig(R"({"model": "m", "listen": "[::]:1", "insecure": true})");
  EXPECT_TRUE(ParseOptions({"--config", config})->insecure);
}

TEST(OptionsTest, SpeculationFlagsBelongTogether) {
  EXPECT_THAT(Error({"--model=m", "--lookup-text=t"}),
              AllOf(HasSubstr("--lookup-text=\"t\""), HasSubstr("add --speculate=lookup")));
  EXPECT_THAT(Error({"--model=m", "--draft-model=d", "--speculate=mtp"}),
              AllOf(HasSubstr("--draft-model=\"d\""), HasSubstr("add --speculate=draft")));
  EXPECT_THAT(Error({"--model=m", "--draft-tokens=7"}),
              AllOf(HasSubstr("--draft-tokens=\"7\""), HasSubstr("add --speculate=lookup")));
  EXPECT_THAT(Error({"--model=m", "--speculate=draft"}), HasSubstr("--draft-model"));
  EXPECT_EQ(ParseOptions({"--model=m", "--speculate=lookup", "--draft-tokens=7"})->draft_tokens,
            7u);
  EXPECT_TRUE(ParseOptions({"--model=m", "--speculate=draft", "--draft-model=d"}).ok());
}

TEST(OptionsTest, ConfigErrorsNameTheKey) {
  EXPECT_THAT(Error({"--config", WriteConfig(R"({"max_queue": 1})")}),
              AllOf(HasSubstr("max_queue"), HasSubstr("--max-queue")));
  EXPECT_THAT(Error({"--config", WriteConfig(R"({"model": "m", "threads": [1]})")}),
              HasSubstr("threads"));
  const std::string object =
      WriteConfig(R"({"model": "m", "override-config": {"norm_groups": 1}})");
  EXPECT_EQ(ParseOptions({"--config", object})->config_override, R"({"norm_groups":1})");
  EXPECT_THAT(Error({"--config", WriteConfig(R"({"help": true})")}), HasSubstr("\"help\" to true"));
  EXPECT_THAT(Error({"--config", WriteConfig(R"({"model": "m", "threads": "many"})")}),
              AllOf(HasSubstr("--threads=\"many\""), HasSubstr("config.json")));
  EXPECT_THAT(Error({"--config", WriteConfig("[1]")}), HasSubstr("JSON object"));
  EXPECT_THAT(Error({"--config", "/dev/zero"}), HasSubstr("more than 1048576 bytes"));
  EXPECT_THAT(Error({"--config", "/"}), HasSubstr("cannot read"));
  EXPECT_THAT(Error({"--config", WriteConfig("{")}), HasSubstr("JSON object"));
}

TEST(OptionsTest, VersionAndHelpNeedNothingElse) {
  EXPECT_TRUE(ParseOptions({"--version"})->show_version);
  EXPECT_TRUE(ParseOptions({"--help"})->show_help);
  EXPECT_THAT(OptionsHelp(), AllOf(HasSubstr("--state-memory"), HasSubstr("1GiB")));
}

// Name and default ("": none) of each flag that --help lists with a value, other than --config. A
// long name has its help on the next line.
std::map<std::string, std::string> FlagDefaults() {
  const std::string help = OptionsHelp();
  const std::regex entry(R"(\n  --([a-z0-9-]+) \S+ *\n? .*)"), text(R"(\(default (.*)\))");
  std::map<std::string, std::string> defaults;
  for (std::sregex_iterator it(help.begin(), help.end(), entry), end; it != end; ++it) {
    const std::string line = (*it)[0];
    std::smatch found;
    defaults[(*it)[1]] = std::regex_search(line, found, text) ? found[1] : std::string();
  }
  EXPECT_EQ(defaults.erase("config"), 1u);
  return defaults;
}

// Each row of README's table: the flag, and a default that begins with the help's.
TEST(OptionsTest, ReadmeListsEveryFlagAndItsDefault) {
  std::ifstream file("README.md");
  ASSERT_TRUE(file.good());
  const std::regex row(R"(\| `--([a-z0-9-]+) .*` \| .+ \| (.+) \|)");
  std::map<std::string, std::string> documented;
  std::smatch cells;
  for (std::string line; std::getline(file, line);) {
    if (std::regex_match(line, cells, row)) documented[cells[1]] = cells[2];
  }
  EXPECT_GE(FlagDefaults().size(), 17u) << OptionsHelp();
  for (const auto& [name, text] : FlagDefaults()) {
    EXPECT_THAT(documented[name], testing::StartsWith(text)) << name;
    EXPECT_NE(documented[name], "") << name;
    documented.erase(name);
  }
  EXPECT_THAT(documented, testing::IsEmpty());
}

TEST(OptionsTest, TheLastOfTwoWinsAndEveryDefaultIsValid) {
  EXPECT_EQ(ParseOptions({"--model=m", "--max-queue=3", "--max-queue", "4"})->max_queue, 4u);
  for (const auto& [name, text] : FlagDefaults()) {
    if (text.empty()) continue;
    EXPECT_TRUE(ParseOptions({"--model=m", "--" + name + "=" + text}).ok()) << name;
  }
}

TEST(CpuCountTest, ReadsTheQuotaOfAControlGroup) {
  EXPECT_EQ(CpusOfQuota("200000 100000\n"), 2u);
  EXPECT_EQ(CpusOfQuota("250000 100000\n"), 3u) << "rounded up: half a core is some use";
  EXPECT_EQ(CpusOfQuota("50000 100000\n"), 1u);
  EXPECT_EQ(CpusOfQuota("max 100000\n"), 0u);
  EXPECT_EQ(CpusOfQuota(""), 0u);
  EXPECT_EQ(CpusOfQuota("1 0"), 0u);
  EXPECT_GE(UsableCpus(), 1u);
}

}  // namespace
}  // namespace rivulet
