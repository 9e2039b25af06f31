// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_HTTP_HTTP_LIMITS_H_
#define RIVULET_SERVER_HTTP_HTTP_LIMITS_H_

#include <chrono>
#include <cstddef>

namespace rivulet {

// What one client, or all together, may use of the HTTP port. Each route has its own limit for the
// bytes of a body.
struct HttpLimits {
  // Clients of the API send 1 KiB, browsers with cookies up to 8.
  size_t head_bytes = 16384;
  // Bodies that are being received, all together; further ones are refused with 503. As much as the
  // worker pool lets wait.
  size_t all_body_bytes = size_t{256} << 20;
  // Open connections; one more closes that which has waited longest for its client. A connection
  // takes about 1 KiB here and up to 256 KiB in the kernel. The server also keeps half of the file
  // descriptors for others.
  size_t connections = 8192;

  // The whole head, from the connection's start or the head's first byte on: slow clients
  // ("slowloris") do not keep a connection with a byte now and then.
  std::chrono::milliseconds head_time{10'000};
  // The whole body: 16 MiB at 2 Mbit/s.
  std::chrono::milliseconds body_time{64'000};
  // Between two requests. Longer than the 60 s after which common load balancers close, so that
  // they do not send a request into a connection that is just being closed.
  std::chrono::milliseconds idle_time{75'000};
  // A client that takes no byte of its response for so long is cut off.
  std::chrono::milliseconds write_time{300'000};
  // After a response that ends the connection, what the client still sends is read and dropped, so
  // that the kernel does not take the response back.
  std::chrono::milliseconds linger_time{2'000};
  // How long the end of the server waits for responses that are being written.
  std::chrono::milliseconds stop_time{1'000};
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_HTTP_LIMITS_H_
