// SPDX-License-Identifier: Apache-2.0
// Files without state cost nothing, and still no state is granted against an operation that is under way.
//
// Who reads or writes asks presence::has_state() first: one load. If there is none, it goes on, and the state layer never hears of
// it, but that it stands in its shard's list of what is in flight, in the order of beginning. Who gets the first state of a file
// sets the file's bucket, and what conflicts with operations (a delegation, a deny bit) is granted when all that began before is over.
//
// How the two are ordered. On the file's home shard: both are steps of one thread. An operation that began before the first state
// stands in the list with a smaller number than the file's `since`; one that begins later finds the bucket set. On another shard
// S: the bucket is set with release, then a message goes to S, and S answers when what was in its list at that moment
// is over. A shard delivers messages between the steps of its tasks, never inside of one. So an operation of S entered
// the list and asked has_state() either before the message, and is waited for, or behind it, and sees the bucket set. So
// neither a fence nor a read-modify-write stands in the path of I/O.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#pragma GCC visibility push(default)

namespace verbena::files {

/// How many files with state there are in each of a number of buckets. One shard writes, any thread asks.
class presence {
public:
    static constexpr std::size_t buckets = 4096;

    explicit presence(const siphash_key& key) noexcept : key_(key) {}
    /// False: nobody has state of the file, but for what was granted after this was asked (above). True: perhaps somebody has. Any
    /// thread.
    bool has_state(const storage::handle& file) const noexcept
    {
        return counts_[bucket_of(file)].load(std::memory_order_acquire) != 0;
    }
    /// The same of any file.
    bool has_any() const noexcept { return files_.load(std::memory_order_acquire) != 0; }
    std::uint64_t hash(const storage::handle& file) const noexcept { return siphash(key_, file.bytes()); }

    /// The owning shard's.
    void add(std::uint64_t hash) noexcept
    {
        auto& n = counts_[hash % buckets];
        n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        files_.store(files_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    void remove(std::uint64_t hash) noexcept
    {
        auto& n = counts_[hash % buckets];
        n.store(n.load(std::memory_order_relaxed) - 1, std::memory_order_release);
        files_.store(files_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
    }

private:
    std::size_t bucket_of(const storage::handle& file) const noexcept { return hash(file) % buckets; }
    siphash_key key_;
    std::array<std::atomic<std::uint32_t>, buckets> counts_{};
    std::atomic<std::uint32_t> files_{0};
};

/// Changes of files that are under way on any shard, in buckets. Who changes a file holds its bucket from before it asks has_state()
/// until the change is done; who grants a delegation sets has_state() first and looks at the bucket then. Both write the same count in
/// one atomic step, so one comes after the other, and sees what that did before: the change has the delegation recalled, or the
/// delegation is not granted. Who knows its file by a name alone, and that nobody has state of any file, need not look the name up: it
/// holds a place that stands for all files, before it asks has_any() once more. Any thread.
class changes_under_way {
public:
    static constexpr std::size_t buckets = 4096;

    /// Whether somebody holds the file's bucket, be it for another file, or stands for all files.
    bool has(const storage::handle& file) noexcept
    {
        if (counts_[bucket_of(file)].fetch_add(0, std::memory_order_acq_rel) != 0)
            return true;
        for (place& p : of_any_)
            if (p.count.fetch_add(0, std::memory_order_acq_rel) != 0)
                return true;
        return false;
    }

private:
    friend class change_hold;
    // Shards share no cache line of these, unless there are more of them.
    struct alignas(64) place {
        std::atomic<std::uint32_t> count{0};
    };
    // What collides costs a delegation, so this need not be a secret.
    static std::size_t bucket_of(const storage::handle& file) noexcept
    {
        std::uint64_t sum = 0xcbf29ce484222325;
        auto bytes = file.bytes();
        for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
            std::uint64_t word;
            std::memcpy(&word, bytes.data(), 8);
            sum = (sum ^ word) * 0x9e3779b97f4a7c15;
            sum ^= sum >> 32;
        }
        for (const std::byte b : bytes)
            sum = (sum ^ std::uint64_t(b)) * 0x100000001b3;
        return (sum ^ sum >> 17) % buckets;
    }
    std::array<std::atomic<std::uint32_t>, buckets> counts_{};
    std::array<place, 16> of_any_;
};

/// One change, for as long as it lives. What it holds of outlives it.
class change_hold {
public:
    change_hold() = default;
    change_hold(const change_hold&) = delete;
    ~change_hold() { end(); }
    void begin(changes_under_way& of, const storage::handle& file) noexcept
    {
        hold(of.counts_[changes_under_way::bucket_of(file)]);
    }
    /// Of whatever file; `shard` is the number of the shard that it is on.
    void begin_of_any(changes_under_way& of, unsigned shard) noexcept
    {
        hold(of.of_any_[shard % of.of_any_.size()].count);
    }
    void end() noexcept
    {
        if (count_ != nullptr)
            count_->fetch_sub(1, std::memory_order_release);
        count_ = nullptr;
    }

private:
    void hold(std::atomic<std::uint32_t>& count) noexcept
    {
        end();
        count_ = &count;
        count_->fetch_add(1, std::memory_order_acq_rel);
    }
    std::atomic<std::uint32_t>* count_ = nullptr;
};

/// Operations on files without state, in the order in which they began. Shard-local.
class in_flight_list {
public:
    struct item : list_hook {
        std::uint64_t number = 0;
    };
    void begin(item& i) noexcept
    {
        i.number = next_++;
        items_.push_back(i);
    }
    /// The number that the next one gets: all that are in flight now have smaller ones.
    std::uint64_t next() const noexcept { return next_; }
    /// Whether nothing is in flight that began before next() was `number`.
    bool over_before(std::uint64_t number) noexcept
    {
        return items_.empty() || items_.front()->number >= number;
    }
    bool empty() const noexcept { return items_.empty(); }

private:
    intrusive_list<item> items_;
    std::uint64_t next_ = 1;
};

} // namespace verbena::files

#pragma GCC visibility pop
