// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/security/test_certificates.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const int64_t bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, static_cast<size_t>(bytes));
}

void SetName(X509* certificate, const std::string& name) {
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.data()),
                             static_cast<int>(name.size()), -1, 0);
}

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate ReadCertificate(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  return Certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), &X509_free);
}

Key ReadKey(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
  return Key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), &EVP_PKEY_free);
}

void Describe(X509* certificate, const CertificateRequest& request) {
  int64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), 7);
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set_int64(X509_get_serialNumber(certificate), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), request.valid_from);
  X509_gmtime_adj(X509_getm_notAfter(certificate), request.valid_until);
  SetName(certificate, request.name);
  AddExtension(certificate, NID_basic_constraints,
               request.authority ? "critical,CA:TRUE" : "CA:FALSE");
  if (request.authority) {
    AddExtension(certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    AddExtension(certificate, NID_subject_alt_name,
                 absl::StrCat("DNS:localhost,DNS:", request.name, ",IP:127.0.0.1,IP:::1",
                              request.uri.empty() ? "" : ",URI:" + request.uri));
  }
}

void Sign(X509* certificate, EVP_PKEY* own_key, const CertificateAndKey* issuer) {
  if (issuer == nullptr) {
    X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
    X509_sign(certificate, own_key, EVP_sha256());
    return;
  }
  const Certificate signer = ReadCertificate(issuer->certificate);
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.get()));
  X509_sign(certificate, ReadKey(issuer->key).get(), EVP_sha256());
}

}  // namespace

CertificateAndKey MakeCertificate(const CertificateRequest& request) {
  const Key key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const Certificate certificate(X509_new(), &X509_free);
  X509_set_pubkey(certificate.get(), key.get());
  Describe(certificate.get(), request);
  Sign(certificate.get(), key.get(), request.issuer);
  const Bio certificate_text(BIO_new(BIO_s_mem()), &BIO_free);
  const Bio key_text(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(certificate_text.get(), certificate.get());
  PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {TextOf(certificate_text.get()), TextOf(key_text.get())};
}

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new", std::ios::binary) << text;
  std::filesystem::rename(path + ".new", path);
}

}  // namespace rivulet
