// SPDX-License-Identifier: Apache-2.0
// Which limit an error of the state layer stands for. Its code says what a client is answered; many limits share one.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/files/types.hpp>

#include <cstdint>
#include <optional>

#pragma GCC visibility push(default)

namespace verbena::files {

/// A limit of state that kept something from being granted.
struct limit_met {
    limited what;   ///< what there is too much of
    limit_of whose; ///< whose limit it is
};

/// `answer`, and the limit that it is for. Any thread.
inline error error_of(const limit_met& met, errc answer) noexcept
{
    return {answer, "", 1 + std::uint64_t(met.what) * limit_counters::scopes + std::uint64_t(met.whose)};
}

/// The limit of error_of(). Nothing: the error is for no limit. Any thread.
inline std::optional<limit_met> limit_met_by(const error& e) noexcept
{
    const bool may_be = e == errc::too_many_opens || e == errc::too_many_locks || e == errc::peer_is_full ||
                        e == errc::all_is_full;
    if (!may_be || e.detail() == 0 || e.detail() > limit_counters::kinds * limit_counters::scopes)
        return std::nullopt;
    const std::uint64_t n = e.detail() - 1;
    return limit_met{limited(n / limit_counters::scopes), limit_of(n % limit_counters::scopes)};
}

} // namespace verbena::files

#pragma GCC visibility pop
