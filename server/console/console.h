// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The web console: GET / is its page, /console/NAME its other files. They are constant, the same
// for every client, and hold nothing of the server: what the page shows it asks the API for, in the
// name of its user. So they need no authentication. docs/console.md is the user's guide.
//
// The headers let the page load scripts and styles from this server alone, and run no script that
// is written in a page.
#ifndef RIVULET_SERVER_CONSOLE_CONSOLE_H_
#define RIVULET_SERVER_CONSOLE_CONSOLE_H_

#include <vector>

#include "server/http/http_server.h"

namespace rivulet {

// Handlers answer at once, on the I/O thread.
std::vector<HttpRoute> ConsoleRoutes();

}  // namespace rivulet

#endif  // RIVULET_SERVER_CONSOLE_CONSOLE_H_
