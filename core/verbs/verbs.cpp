// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/verbs/verbs.hpp>

namespace verbena::verbs {

std::string_view to_string(status s) noexcept
{
    switch (s) {
    case status::success: return "success";
    case status::local_length_error: return "local length error";
    case status::local_protection_error: return "local protection error";
    case status::work_request_flushed: return "work request flushed";
    case status::remote_invalid_request: return "remote invalid request";
    case status::remote_access_error: return "remote access error";
    case status::remote_operation_error: return "remote operation error";
    case status::retry_exceeded: return "retry exceeded";
    case status::rnr_retry_exceeded: return "receiver not ready";
    case status::fatal_error: return "fatal error";
    }
    return "unknown status";
}

const std::error_category& status_category() noexcept
{
    static const class : public std::error_category {
        const char* name() const noexcept override { return "verbs"; }
        std::string message(int value) const override { return std::string(to_string(status(value))); }
    } category;
    return category;
}

std::error_code make_error_code(status s) noexcept { return {static_cast<int>(s), status_category()}; }

std::error_code make_error_code(connection_end e) noexcept
{
    static const class : public std::error_category {
        const char* name() const noexcept override { return "connection"; }
        std::string message(int) const override { return "between two messages"; }
    } category;
    return {static_cast<int>(e), category};
}

task<result<grant>> protection_domain::make_grant(std::span<std::byte> memory, access rights,
                                                  queue_pair* scope, memory_owner keep)
{
    grant_request one;
    one.memory = memory;
    one.rights = rights;
    one.scope = scope;
    one.keep = std::move(keep);
    const std::span<grant_request> batch(&one, 1);
    const auto made = co_await make_grants(batch);
    if (!made)
        co_return made.error();
    co_return std::move(one.made);
}

} // namespace verbena::verbs
