// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/dispatcher.h"

#include <iterator>
#include <utility>

#include "kernels/base/thread_name.h"

namespace rivulet {

Dispatcher::Dispatcher() : thread_([this] { Run(); }) {}

Dispatcher::~Dispatcher() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  announced_.NotifyOne();
  thread_.join();
}

void Dispatcher::Announce(std::vector<std::shared_ptr<Outbox>>& outboxes) {
  if (outboxes.empty()) return;
  {
    MutexLock lock(&mutex_);
    ready_.insert(ready_.end(), std::make_move_iterator(outboxes.begin()),
                  std::make_move_iterator(outboxes.end()));
  }
  announced_.NotifyOne();
  outboxes.clear();
}

bool Dispatcher::WaitForWork(std::vector<std::shared_ptr<Outbox>>& work) {
  MutexLock lock(&mutex_);
  while (ready_.empty() && !stopping_) announced_.Wait(&mutex_);
  work.swap(ready_);
  return !work.empty();
}

void Dispatcher::Run() {
  NameThisThread("rivulet-streams");
  std::vector<std::shared_ptr<Outbox>> work;
  while (WaitForWork(work)) {
    for (const std::shared_ptr<Outbox>& outbox : work) outbox->Deliver();
    work.clear();
  }
}

}  // namespace rivulet
