// SPDX-License-Identifier: Apache-2.0
// A back end whose locks of a file tests hold in their hands: it is slow, fails, and has local processes.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/files/state_table.hpp>
#include <verbena/protocols/storage/local_locks.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <vector>

namespace verbena::test {

/// A back end's locks of one file, by hand.
struct hand_made {
    std::optional<storage::local_holder> holder; ///< a local process's
    int fails_with = 0;
    bool holds = false; ///< calls wait for `go`
    event go;
    int locks = 0, tests = 0, objects = 0, settles = 0;
    std::uint64_t peer = 0;                ///< of the last lock()
    files::byte_range told;                ///< of the last keep()
    std::vector<storage::lock_range> kept; ///< likewise
    int keeps = 0;
    int keeps_without_memory = 0;          ///< so many fail
    std::map<std::uint64_t, bool> holding; ///< of the first bytes, by now
};

class hand_made_locks final : public storage::local_locks {
public:
    explicit hand_made_locks(hand_made& o) noexcept : of_(o) { ++of_.objects; }
    ~hand_made_locks() override { --of_.objects; }
    task<result<std::optional<storage::local_holder>>> lock(storage::lock_range bytes,
                                                            std::uint64_t peer) override
    {
        ++of_.locks;
        of_.peer = peer;
        if (of_.holds)
            (void)co_await of_.go.wait();
        if (of_.fails_with != 0)
            co_return error::from_errno(of_.fails_with, "by hand");
        const auto found = against(bytes);
        for (std::uint64_t at = bytes.offset; !found && at <= std::min<std::uint64_t>(bytes.last, 99); ++at)
            of_.holding[at] = true;
        co_return found;
    }
    task<result<std::optional<storage::local_holder>>> test(storage::lock_range bytes) override
    {
        ++of_.tests;
        if (of_.holds)
            (void)co_await of_.go.wait();
        if (of_.fails_with != 0)
            co_return error::from_errno(of_.fails_with, "by hand");
        co_return against(bytes);
    }
    void keep(std::uint64_t offset, std::uint64_t last, std::span<const storage::lock_range> held) override
    {
        if (of_.keeps_without_memory > 0) {
            --of_.keeps_without_memory;
            throw std::bad_alloc();
        }
        ++of_.keeps;
        of_.told = {offset, last};
        of_.kept.assign(held.begin(), held.end());
        for (std::uint64_t at = offset; at <= std::min<std::uint64_t>(last, 99); ++at)
            of_.holding[at] = std::ranges::any_of(
                held, [at](const auto& one) { return one.offset <= at && at <= one.last; });
    }
    task<void> settle() override
    {
        ++of_.settles;
        co_return;
    }

private:
    std::optional<storage::local_holder> against(const storage::lock_range& bytes) const
    {
        if (of_.holder && of_.holder->bytes.offset <= bytes.last && bytes.offset <= of_.holder->bytes.last)
            return of_.holder;
        return std::nullopt;
    }
    hand_made& of_;
};

} // namespace verbena::test
