// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace verbena::files {

storage::handle file_key(std::uint32_t space, const storage::handle& file) noexcept
{
    std::array<std::byte, storage::handle::max_size> bytes;
    xdr::store_u32(bytes.data(), space);
    const auto from = file.bytes();
    const auto copied = from.first(std::min(from.size(), bytes.size() - 4));
    std::copy(copied.begin(), copied.end(), bytes.begin() + 4);
    // A mount beneath the export may have longer ones, which are never signed: what does not fit counts as well.
    if (copied.size() < from.size())
        xdr::store_u64(bytes.data() + bytes.size() - 8, siphash(siphash_key(), from));
    return storage::handle(std::span(bytes).first(4 + copied.size()));
}

std::optional<file_of_space> open_file_key(const storage::handle& key) noexcept
{
    const auto bytes = key.bytes();
    if (bytes.size() <= 4)
        return std::nullopt;
    return file_of_space{xdr::load_u32(bytes.data()), storage::handle(bytes.subspan(4))};
}

// --- One operation

void under_way::enter(operations_here& here, std::uint32_t space, share access) noexcept
{
    number_ = here.next_++;
    space_ = space;
    access_ = access;
    here.list_.push_back(*this);
}

void under_way::count(std::atomic<std::uint32_t>& in) noexcept
{
    counted_in_ = &in;
    // Before has_state() is loaded: see the header.
    counted_in_->fetch_add(1, std::memory_order_acq_rel);
}

void under_way::begin(operations_here& here, std::uint32_t space, const storage::handle& file,
                      operation op) noexcept
{
    end();
    const share access = access_of(op);
    assert((any(access) || is_change(op)) && "the table knows of this by itself");
    if (any(access)) {
        file_ = file;
        enter(here, space, access);
    }
    if (is_change(op))
        count(here.all_.count_of(file_key(space, file)));
}

void under_way::begin_by_name(operations_here& here, operation op) noexcept
{
    end();
    assert(is_change(op) && "what reads a file knows its handle");
    if (const share access = access_of(op); any(access))
        enter(here, all_spaces, access);
    count(here.all_.count_of_all_files(here.where_));
}

void under_way::end() noexcept
{
    unlink();
    if (awaited_by_ != nullptr)
        std::exchange(awaited_by_, nullptr)->note_end(*this);
    // Whoever finds it uncounted sees what it has changed.
    if (counted_in_ != nullptr)
        std::exchange(counted_in_, nullptr)->fetch_sub(1, std::memory_order_release);
}

// --- Those of one shard

/// Somebody who waits for what was under way when he came. The list is looked through once, when he comes: those that
/// he waits for say when they end.
struct operations_here::ending final : list_hook, timer {
    ending(const storage::handle& k, share a, std::uint64_t b) noexcept : key(k), access(a), before(b) {}
    bool minds(const under_way& one) const noexcept
    {
        return one.number_ < before && any(one.access_ & access) &&
               (one.space_ == under_way::all_spaces || file_key(one.space_, one.file_) == key);
    }
    void on_timer() noexcept override { over.set(); }

    const storage::handle key;
    const share access;
    const std::uint64_t before;
    std::size_t left = 0; // that have not ended
    event over;           // or his patience is
};

void operations_here::note_end(const under_way& one) noexcept
{
    for (list_hook* e = endings_.front(); e != nullptr; e = endings_.next(*e)) {
        ending& waits = static_cast<ending&>(*e);
        if (waits.minds(one) && --waits.left == 0)
            waits.over.set();
    }
}

task<result<void>> operations_here::ended(storage::handle key, share access, duration patience)
{
    ending waits(key, access, next_);
    for (under_way* one = list_.front(); one != nullptr; one = list_.next(*one)) {
        if (waits.minds(*one)) {
            one->awaited_by_ = this;
            ++waits.left;
        }
    }
    if (waits.left == 0)
        co_return result<void>();
    if (patience <= duration::zero())
        co_return error(errc::busy, "what is under way on the file");
    const task_context& context = co_await current_context();
    endings_.push_back(waits);
    context.shard->timers().arm(waits, context.shard->now() + patience);
    const bool goes_on = co_await waits.over.wait("operations on the file that are under way");
    if (waits.left == 0)
        co_return result<void>();
    if (!goes_on)
        co_return error(std::errc::operation_canceled);
    co_return error(errc::busy, "what is under way on the file");
}

// --- All

operations_here& operations_under_way::on(const shard& where)
{
    const std::lock_guard held(lock_);
    for (const auto& known : shards_) {
        if (&known->where_ == &where)
            return *known;
    }
    return *shards_.emplace_back(std::make_unique<operations_here>(*this, where));
}

// What collides costs a delegation. Peers that make many files could have them all in the bucket of somebody else's,
// but for the key: nobody knows the sum that this begins with.
std::atomic<std::uint32_t>& operations_under_way::count_of(const storage::handle& key) noexcept
{
    std::uint64_t sum = begin_;
    auto bytes = key.bytes();
    for (; bytes.size() >= 8; bytes = bytes.subspan(8)) {
        std::uint64_t word;
        std::memcpy(&word, bytes.data(), 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15;
        sum ^= sum >> 32;
    }
    for (const std::byte b : bytes)
        sum = (sum ^ std::uint64_t(b)) * 0x100000001b3;
    return counts_[(sum ^ sum >> 17) % buckets];
}

std::atomic<std::uint32_t>& operations_under_way::count_of_all_files(const shard& where) noexcept
{
    return of_all_files_[where.index() % of_all_files_.size()].count;
}

bool operations_under_way::is_changed(const storage::handle& key) noexcept
{
    if (count_of(key).fetch_add(0, std::memory_order_acq_rel) != 0)
        return true;
    for (place& p : of_all_files_)
        if (p.count.fetch_add(0, std::memory_order_acq_rel) != 0)
            return true;
    return false;
}

task<result<void>> operations_under_way::ended(storage::handle key, share access, duration patience)
{
    const task_context& context = co_await current_context();
    const clock_source& clock = context.shard->clock();
    const time_point end = clock.now() + patience;
    for (std::size_t i = 0;; ++i) {
        operations_here* at = nullptr;
        {
            const std::lock_guard held(lock_);
            if (i == shards_.size())
                co_return result<void>();
            at = shards_[i].get();
        }
        const duration left = std::max(end - clock.now(), duration::zero());
        const auto ended_there = [at, &key, access, left] { return at->ended(key, access, left); };
        const result<void> over = co_await at->where_.run(ended_there);
        if (!over)
            co_return over;
    }
}

} // namespace verbena::files
