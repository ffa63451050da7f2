// SPDX-License-Identifier: Apache-2.0
// Who a call comes from, as programs and exports see it, whichever authentication said so.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// A user and its groups, or nobody in particular (AUTH_NONE). A value: whoever keeps it copies it.
class principal {
public:
    static constexpr std::size_t max_groups = 16; ///< as many as AUTH_SYS carries (RFC 5531 appendix A)

    /// Nobody in particular.
    principal() noexcept {}
    /// `groups` are supplementary; more than max_groups are cut off.
    principal(std::uint32_t uid, std::uint32_t gid, std::span<const std::uint32_t> groups) noexcept
        : is_known_(true),
          uid_(uid),
          gid_(gid),
          group_count_(static_cast<std::uint32_t>(std::min(groups.size(), max_groups)))
    {
        std::copy_n(groups.begin(), group_count_, groups_.begin());
    }
    principal(const principal& other) noexcept { *this = other; }
    principal& operator=(const principal& other) noexcept
    {
        is_known_ = other.is_known_;
        uid_ = other.uid_;
        gid_ = other.gid_;
        group_count_ = other.group_count_;
        std::copy_n(other.groups_.begin(), group_count_, groups_.begin());
        return *this;
    }

    /// The caller did not say who it is; uid() and gid() mean nothing then.
    bool is_anonymous() const noexcept { return !is_known_; }
    std::uint32_t uid() const noexcept { return uid_; }
    std::uint32_t gid() const noexcept { return gid_; }
    /// Supplementary groups, at most 16 by AUTH_SYS. Valid as long as the principal.
    std::span<const std::uint32_t> groups() const noexcept { return {groups_.data(), group_count_}; }

private:
    bool is_known_ = false;
    std::uint32_t uid_ = 0;
    std::uint32_t gid_ = 0;
    std::uint32_t group_count_ = 0;
    // Not initialised, as there is one in each call: those beyond group_count_ are never read.
    std::array<std::uint32_t, max_groups> groups_;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
