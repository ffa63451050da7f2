// SPDX-License-Identifier: Apache-2.0
// Files without state cost one load: whoever reads or changes one asks presence::has_state(), and goes on if nobody has state of it.
// under_way.hpp tells why nothing is granted meanwhile that contradicts that.
#pragma once

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::files {

/// How many files with state there are in each of a number of buckets. Any thread writes and asks: a file's home writes, which is one
/// of several.
class presence {
public:
    /// files share them; a bucket that is not empty costs its files the way to their home
    static constexpr std::size_t buckets = 4096;

    /// `key` is drawn at random, so that clients can't choose a bucket.
    explicit presence(const siphash_key& key) noexcept : key_(key) {}
    /// False: nobody has state of the file, but for what was granted after this was asked (under_way.hpp). True: perhaps somebody has.
    /// Any thread.
    bool has_state(const storage::handle& file) const noexcept
    {
        return counts_[bucket_of(file)].load(std::memory_order_acquire) != 0;
    }
    /// The same of any file.
    bool has_any() const noexcept { return files_.load(std::memory_order_acquire) != 0; }
    /// What add() and remove() are given for a file.
    std::uint64_t hash(const storage::handle& file) const noexcept { return siphash(key_, file.bytes()); }

    /// A file gets its first state, or has lost its last one.
    void add(std::uint64_t hash) noexcept
    {
        counts_[hash % buckets].fetch_add(1, std::memory_order_release);
        files_.fetch_add(1, std::memory_order_release);
    }
    /// A file has lost its last state.
    void remove(std::uint64_t hash) noexcept
    {
        counts_[hash % buckets].fetch_sub(1, std::memory_order_release);
        files_.fetch_sub(1, std::memory_order_release);
    }

private:
    std::size_t bucket_of(const storage::handle& file) const noexcept { return hash(file) % buckets; }
    siphash_key key_;
    std::array<std::atomic<std::uint32_t>, buckets> counts_{};
    std::atomic<std::uint32_t> files_{0};
};

} // namespace verbena::files

#pragma GCC visibility pop
