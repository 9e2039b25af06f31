// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_THREAD_NAME_H_
#define RIVULET_KERNELS_BASE_THREAD_NAME_H_

#include <pthread.h>

namespace rivulet {

// What `top -H`, a debugger and /proc show of the calling thread. At most 15 characters: the system
// refuses more, and the thread then keeps the name it had.
inline void NameThisThread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_THREAD_NAME_H_
