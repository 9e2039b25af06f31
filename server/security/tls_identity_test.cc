// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/tls_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <future>
#include <string>

#include "kernels/base/test_directory.h"
#include "server/security/file_watch.h"
#include "server/security/test_certificates.h"

namespace rivulet {
namespace {

using ::testing::HasSubstr;

class TlsIdentityTest : public testing::Test {
 protected:
  void Write(const CertificateAndKey& identity) {
    WriteFile(paths_.certificate, identity.certificate);
    WriteFile(paths_.key, identity.key);
  }
  std::string Refusal() { return std::string(TlsIdentity::FromFiles(paths_).status().message()); }

  const std::string directory_ = TestDirectory();
  TlsPaths paths_{directory_ + "/tls.crt", directory_ + "/tls.key", ""};
  const CertificateAndKey authority_ = MakeCertificate({.name = "a root", .authority = true});
  const CertificateAndKey own_ = MakeCertificate({.issuer = &authority_});
};

TEST_F(TlsIdentityTest, ReadsACertificateAndItsKey) {
  Write({own_.certificate + authority_.certificate, own_.key});
  const auto identity = TlsIdentity::FromFiles(paths_);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_NEAR((*identity)->current()->expires_unix, std::time(nullptr) + 86400, 60);
  EXPECT_NE((*identity)->current()->context, nullptr);
}

TEST_F(TlsIdentityTest, NamesWhatIsWrong) {
  EXPECT_THAT(Refusal(), HasSubstr("tls.crt cannot be read"));
  Write({"", own_.key});
  EXPECT_THAT(Refusal(), HasSubstr("tls.crt: it has no certificate"));
  Write({own_.certificate, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"});
  EXPECT_THAT(Refusal(), HasSubstr("tls.key: it has no private key"));
  Write({own_.certificate, authority_.key});
  EXPECT_THAT(Refusal(), HasSubstr("the key does not belong to the certificate"));
  Write(own_);
  paths_.client_ca = directory_ + "/ca.crt";
  EXPECT_THAT(Refusal(), HasSubstr("ca.crt cannot be read"));
  WriteFile(paths_.client_ca, "nothing");
  EXPECT_THAT(Refusal(), HasSubstr("ca.crt: it has no certificate"));
  WriteFile(paths_.client_ca, authority_.certificate);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(TlsIdentityTest, AReloadTakesNewFilesAndKeepsOldOnesWhenTheyDoNotFit) {
  Write(own_);
  const auto identity = *TlsIdentity::FromFiles(paths_);
  const auto first = identity->current();
  ASSERT_TRUE(identity->Reload().ok());
  EXPECT_EQ(identity->current(), first);  // nothing has changed
  const CertificateAndKey next = MakeCertificate({.issuer = &authority_});
  WriteFile(paths_.certificate, next.certificate);  // a rotation, half done
  EXPECT_FALSE(identity->Reload().ok());
  EXPECT_EQ(identity->current(), first);
  WriteFile(paths_.key, next.key);
  ASSERT_TRUE(identity->Reload().ok());
  EXPECT_EQ(identity->current()->certificate, next.certificate);
}

// Waits for the next call.
class Changes {
 public:
  std::function<void()> callback() {
    return [this] {
      MutexLock lock(&mutex_);
      ++calls_;
      called_.NotifyAll();
    };
  }
  void WaitForMoreThan(int calls) {
    MutexLock lock(&mutex_);
    while (calls_ <= calls) called_.Wait(&mutex_);
  }
  int calls() {
    MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar called_;
  int calls_ = 0;
};

TEST(FileWatchTest, TellsOfAReplacedFileAndOfAReplacedLink) {
  const std::string directory = TestDirectory();
  std::filesystem::create_directory(directory + "/one");
  std::filesystem::create_directory(directory + "/two");
  WriteFile(directory + "/one/file", "1");
  WriteFile(directory + "/two/file", "2");
  // As Kubernetes mounts a Secret: file -> ..data/file, ..data -> the folder that counts.
  std::filesystem::create_symlink("one", directory + "/..data");
  std::filesystem::create_symlink("..data/file", directory + "/file");
  WriteFile(directory + "/plain", "1");
  Changes changes;
  const auto watch =
      FileWatch::Start({directory + "/file", directory + "/plain"}, changes.callback());
  ASSERT_TRUE(watch.ok());
  WriteFile(directory + "/plain", "2");
  changes.WaitForMoreThan(0);
  const int calls = changes.calls();
  std::filesystem::create_symlink("two", directory + "/..new");
  std::filesystem::rename(directory + "/..new", directory + "/..data");
  changes.WaitForMoreThan(calls);
}

TEST(FileWatchTest, EndsAtOnce) {
  Changes changes;
  { ASSERT_TRUE(FileWatch::Start({TestDirectory() + "/none"}, changes.callback()).ok()); }
  EXPECT_EQ(changes.calls(), 0);
}

}  // namespace
}  // namespace rivulet
