// SPDX-License-Identifier: Apache-2.0
// Exceptions where they must not go on: a throw in a procedure or in a connection's task costs that call or that connection,
// never the process.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/result.hpp>

#include <exception>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// Hears of the exceptions that leave the tasks of a scope, instead of who joins it.
class exception_handler {
public:
    /// The task is gone. On the scope's shard, not in a poll; must not destroy the scope.
    virtual void on_exception(const std::exception_ptr& e) noexcept = 0;

protected:
    ~exception_handler() = default;
};

/// The error that `e` stands for: the code of a std::system_error, ENOMEM for std::bad_alloc, else ENOTRECOVERABLE.
error error_of(const std::exception_ptr& e, const char* context) noexcept;

/// What `e` says, for a log.
std::string what_of(const std::exception_ptr& e);

/// A handler that only logs.
class exception_logger final : public exception_handler {
public:
    /// `component` outlives it.
    explicit exception_logger(std::string_view component) noexcept : component_(component) {}
    void on_exception(const std::exception_ptr& e) noexcept override
    {
        log_limited(limiter_, log_level::error, component_, "a task ended by an exception",
                    {{"exception", what_of(e)}});
    }

private:
    std::string_view component_;
    log_limiter limiter_;
};

} // namespace verbena

#pragma GCC visibility pop
