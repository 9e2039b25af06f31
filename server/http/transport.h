// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The bytes of a connection: as the socket has them, or under TLS. Nothing here blocks or waits:
// who reads or writes waits for the socket as `wait` says and tries again.
//
// TLS is OpenSSL's, on the socket itself. Asio's stream over OpenSSL keeps 34 KiB of buffers for
// each connection; here a connection that waits has none. The handshake is a part of the first
// read, and counts to the time that the head may take.
//
// Threading: on the connection's thread. The socket outlives the transport.
#ifndef RIVULET_SERVER_HTTP_TRANSPORT_H_
#define RIVULET_SERVER_HTTP_TRANSPORT_H_

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <memory>

#include "server/security/peer_names.h"

struct ssl_ctx_st;

namespace rivulet {

class Transport {
 public:
  enum class Progress {
    kDone,     // `bytes` of them, at least one
    kBlocked,  // try again when the socket is ready for `wait`
    kEnd,      // the peer will send no more
    kFailed,   // the connection is of no use
  };
  struct Result {
    Progress progress = Progress::kFailed;
    size_t bytes = 0;
    boost::asio::socket_base::wait_type wait = boost::asio::socket_base::wait_read;
  };

  virtual ~Transport() = default;
  virtual Result Read(char* to, size_t most) = 0;
  // After kBlocked, the next Write begins with the same bytes.
  virtual Result Write(const char* from, size_t bytes) = 0;
  // There are bytes to Read that the socket does not know of.
  virtual bool holds_input() const = 0;
  // Tells the peer that no more will be written. False if the connection is of no use.
  virtual bool EndOutput() = 0;
  // Of the peer's certificate, which the handshake has verified; none without one.
  virtual PeerNames peer_names() const { return {}; }
};

std::unique_ptr<Transport> MakePlainTransport(boost::asio::ip::tcp::socket& socket);
// Null if memory is short. The transport keeps the context. REQUIRES: the process ignores SIGPIPE,
// since OpenSSL writes to sockets that the peer has closed.
std::unique_ptr<Transport> MakeTlsTransport(boost::asio::ip::tcp::socket& socket,
                                            std::shared_ptr<ssl_ctx_st> context);

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_TRANSPORT_H_
