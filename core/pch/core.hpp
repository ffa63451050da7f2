// SPDX-License-Identifier: Apache-2.0
// Precompiled for each library: what nearly all their files read first. A file includes what it uses all the same; the suites
// `embed` and `tidy` do without this header.
#include <verbena/core/log.hpp>
#include <verbena/core/memory/budget.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
