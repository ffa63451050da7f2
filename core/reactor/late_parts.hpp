// SPDX-License-Identifier: Apache-2.0
// What a reactor has only when somebody has asked for it. The reactor's header need not know these types.
#pragma once

#include "../task/left_scope.hpp"

#include <verbena/core/reactor/own_threads.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>

#include <memory>

namespace verbena::detail {

struct late_parts {
    std::unique_ptr<own_threads> threads;
    exception_logger unhandled{"core"}; // of left_behind
    std::unique_ptr<scope> left_behind;
};

} // namespace verbena::detail
