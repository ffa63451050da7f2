// SPDX-License-Identifier: Apache-2.0
// Precompiled for each library: what nearly all their files read first. A file includes what it uses all the same; the suites
// `embed` and `tidy` do without this header.
#include <verbena/core/blocking.hpp>
#include <verbena/core/buffer.hpp>
#include <verbena/core/io_watch.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/core/slab.hpp>
#include <verbena/core/verbs.hpp>

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
