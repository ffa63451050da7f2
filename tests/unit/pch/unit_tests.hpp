// SPDX-License-Identifier: Apache-2.0
// Precompiled for all unit tests: a tenth of the time that a cold build takes went into reading these.
#include "../checks.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <chrono>
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
