// SPDX-License-Identifier: Apache-2.0
#include "failure.hpp"

#include "commands.hpp"

#include <algorithm>
#include <array>
#include <unistd.h>

namespace verbena::cli {

failure::failure(std::string what, const error& why, std::string cure)
    : what_(std::move(what)), cure_(std::move(cure))
{
    what_ += ": " + why.message();
}

std::string refusal(const error& e)
{
    std::string text = e.message();
    if (e == std::errc::permission_denied && ::geteuid() == 0)
        text += "\n  servers take root for nobody (root_squash): act as a user who may write there, or "
                "export it with "
                "root_squash=no";
    return text;
}

bool ends_all(const error& e) noexcept
{
    constexpr std::array ends = {std::errc::timed_out,          std::errc::connection_reset,
                                 std::errc::connection_refused, std::errc::connection_aborted,
                                 std::errc::broken_pipe,        std::errc::not_connected,
                                 std::errc::host_unreachable,   std::errc::network_unreachable,
                                 std::errc::operation_canceled, std::errc::not_enough_memory};
    return std::ranges::any_of(ends, [&e](std::errc c) { return e == c; });
}

} // namespace verbena::cli
