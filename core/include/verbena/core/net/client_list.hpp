// SPDX-License-Identifier: Apache-2.0
// Who may use something, by address.
#pragma once

#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/result.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// Which peers are admitted, by address. A value: filled by one thread, then read by any.
class client_list {
public:
    static constexpr std::size_t max_entries = 1024; ///< one more is EINVAL

    /// Adds "*" (everybody), an address or a CIDR prefix.
    result<void> add(std::string_view text);
    /// True as long as nothing was added: this host only.
    bool local_only() const noexcept { return !everybody_ && prefixes_.empty(); }
    bool everybody() const noexcept { return everybody_; }
    /// Whether a peer at `address` may come in. Without an entry: whether it is this host, which `host` knows.
    /// On one thread at a time, since `host` may read its list again.
    bool admits(const ip_address& address, host_addresses& host) const;
    /// True if a globally routable address could be admitted.
    bool admits_strangers() const noexcept;
    /// The entries as people write them; "localhost" for this host only.
    std::vector<std::string> texts() const;

private:
    std::vector<ip_prefix> prefixes_;
    bool everybody_ = false;
};

} // namespace verbena

#pragma GCC visibility pop
