// SPDX-License-Identifier: Apache-2.0
// Precompiled for all unit tests: a fifth of the time that their files take would go into reading these.
#include "../checks.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
