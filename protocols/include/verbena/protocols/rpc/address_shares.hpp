// SPDX-License-Identifier: Apache-2.0
// What the connections of one peer hold together on one shard, call by call: so a host with many of them doesn't hold everything. How many
// connections it has, over all shards, is counted by peer_shares.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// A Share for each peer (peer_group()) that a server has connections of. Outlives its users. Shard-local.
template<class Share>
class address_shares {
public:
    /// One connection's hold on the share of its peer. Move-only; an empty one refers to nothing.
    class user {
    public:
        user() = default;
        /// One connection more of the peer at `address`. `all` outlives it.
        user(address_shares& all, const std::string& address)
            : all_(&all), at_(all.shares_.try_emplace(address).first)
        {
            ++at_->second.connections;
        }
        user(user&& other) noexcept : all_(std::exchange(other.all_, nullptr)), at_(other.at_) {}
        user& operator=(user&& other) noexcept
        {
            std::swap(all_, other.all_);
            std::swap(at_, other.at_);
            return *this;
        }
        ~user()
        {
            if (all_ != nullptr && --at_->second.connections == 0)
                all_->shares_.erase(at_);
        }
        Share& operator*() const noexcept { return at_->second; }
        Share* operator->() const noexcept { return &at_->second; }

    private:
        address_shares* all_ = nullptr;
        typename std::map<std::string, Share>::iterator at_;
    };

private:
    std::map<std::string, Share> shares_;
};

/// True if `wanted` more than `used` is over `most`. Who holds nothing may always have something.
constexpr bool exceeds_share(std::size_t used, std::size_t wanted, std::size_t most) noexcept
{
    return used != 0 && (wanted > most || used > most - wanted);
}

} // namespace verbena::rpc

#pragma GCC visibility pop
