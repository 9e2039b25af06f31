// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC's protobuf and the copy inside libsentencepiece in one process: with Debian's packages as
// they are, this aborts or crashes.
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "google/protobuf/arena.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "model_loader/sentencepiece/sentencepiece.h"
#include "rivulet/v1/inference.pb.h"

namespace rivulet {
namespace {

std::string TrainToyModel() {
  const std::string prefix = TestDirectory() + "/toy";
  std::ofstream text(prefix + ".txt");
  for (int i = 0; i < 200; ++i) text << "A stream runs down to the river " << i << "\n";
  text.close();
  const std::string command = "spm_train --input='" + prefix + ".txt' --model_prefix='" + prefix +
                              "' --vocab_size=350 --hard_vocab_limit=false --byte_fallback"
                              " --minloglevel=2";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return prefix + ".model";
}

// Parses and serializes a message with a map, on the heap and on an arena.
void UseProtobuf() {
  v1::SamplingParams params;
  params.set_temperature(0.5F);
  (*params.mutable_logit_bias())[7] = 1.5F;
  const std::string bytes = params.SerializeAsString();
  google::protobuf::Arena arena;
  auto* const parsed = google::protobuf::Arena::CreateMessage<v1::SamplingParams>(&arena);
  ASSERT_TRUE(parsed->ParseFromString(bytes));
  EXPECT_EQ(parsed->logit_bias().at(7), 1.5F);
  EXPECT_NE(parsed->DebugString(), "");
}

void UseSentencePiece(const SentencePiece& model) {
  std::vector<int> ids;
  std::string text;
  std::string error;
  ASSERT_TRUE(model.Encode("down the river", &ids, &error)) << error;
  ASSERT_TRUE(model.Decode(ids, &text, &error)) << error;
  EXPECT_EQ(text, "down the river");
}

TEST(ProtobufSentencePieceTest, LiveInOneProcess) {
  UseProtobuf();
  std::string error;
  const auto model = SentencePiece::LoadFile(TrainToyModel(), &error);
  ASSERT_NE(model, nullptr) << error;
  UseSentencePiece(*model);
  UseProtobuf();
  // gRPC must be loaded too: it is what brings the second protobuf into the server.
  EXPECT_NE(grpc::Version(), "");
  UseSentencePiece(*model);
}

}  // namespace
}  // namespace rivulet
