// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>

#include <new>
#include <system_error>

namespace verbena {

error error_of(const std::exception_ptr& e, const char* context) noexcept
{
    try {
        std::rethrow_exception(e);
    } catch (const std::system_error& s) {
        return error(s.code(), context);
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, context);
    } catch (...) {
        return error(std::errc::state_not_recoverable, context);
    }
}

std::string what_of(const std::exception_ptr& e)
{
    const char* text = "of an unknown type";
    try {
        std::rethrow_exception(e);
    } catch (const std::exception& known) {
        text = known.what();
    } catch (...) { // it says nothing
    }
    try {
        return text;
    } catch (const std::bad_alloc&) { // those who tell of an exception must not throw one
        return "no memory";           // which takes none itself
    }
}

namespace detail {

void log_lost_exception(const std::exception_ptr& e) noexcept
{
    static log_limiter limiter;
    log_limited(limiter, log_level::error, "core",
                "a task ended by an exception, and nobody joined its scope", {{"exception", what_of(e)}});
}

} // namespace detail

} // namespace verbena
