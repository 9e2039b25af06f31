// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_HTTP_COMPRESSION_H_
#define RIVULET_SERVER_HTTP_COMPRESSION_H_

#include "server/http/http_message.h"

namespace rivulet {

// Packs the body with gzip, if the client accepts that and there is memory for it, and adds the
// headers that say so. For texts of some kilobytes, since it runs on the thread that calls it.
void CompressFor(const HttpRequest& request, HttpResponse& response);

}  // namespace rivulet

#endif  // RIVULET_SERVER_HTTP_COMPRESSION_H_
