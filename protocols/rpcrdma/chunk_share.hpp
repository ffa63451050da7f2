// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/event.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace verbena::rpcrdma {

/// What the connections from one address move through chunks at this moment.
struct chunk_share {
    std::uint64_t bytes = 0;
    std::size_t connections = 0;
    event freed;
};

/// The shares of all addresses that a listener has connections from. Outlives its users. Shard-local.
class chunk_shares {
public:
    /// One connection's hold on the share of its address.
    class user {
    public:
        user() = default;
        user(chunk_shares& all, const std::string& address)
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
        chunk_share& operator*() const noexcept { return at_->second; }
        chunk_share* operator->() const noexcept { return &at_->second; }

    private:
        chunk_shares* all_ = nullptr;
        std::map<std::string, chunk_share>::iterator at_;
    };

private:
    std::map<std::string, chunk_share> shares_;
};

} // namespace verbena::rpcrdma
