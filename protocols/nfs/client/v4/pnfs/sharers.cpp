// SPDX-License-Identifier: Apache-2.0
// Open files of one client that share what it has of a file's layouts.
#include "../server_open.hpp"
#include "file_layout.hpp"
#include "layout_answers.hpp"

#include <algorithm>
#include <utility>

namespace verbena::nfs::v4::pnfs {

void file_layout::join(std::shared_ptr<layout_sharer> one)
{
    const std::uint64_t now = one->plain->node().attributes.size;
    // What others did to the file meanwhile, its layout would have been recalled for, unless it grew.
    if (!id && pending.empty() && sharers.empty())
        size = there = now;
    size = std::max(size, now);
    there = std::max(there, now);
    never = by_nfs::none;
    sharers.push_back(one);
    latest = std::move(one);
}

void file_layout::leave(const std::shared_ptr<layout_sharer>& one) noexcept
{
    std::erase(sharers, one);
    if (!sharers.empty())
        latest = sharers.back();
    else if (!is_giving_back)
        let_go();
}

// Nobody has the file open: what is not committed is lost, which close() has told.
void file_layout::let_go() noexcept
{
    forget_layout();
    pending.clear();
    uncommitted = 0;
}

bool file_layout::is_last(const layout_sharer& one) const noexcept
{
    return std::ranges::none_of(sharers,
                                [&](const auto& each) { return each.get() != &one && !each->is_closing; });
}

std::shared_ptr<layout_sharer> file_layout::writer_of(const written& bytes) const noexcept
{
    std::shared_ptr<layout_sharer> its = bytes.by.lock();
    if (std::ranges::find(sharers, its) != sharers.end())
        return its;
    const auto found = std::ranges::find_if(
        sharers, [](const auto& each) { return (each->plain->access() & share4::access_write) != 0; });
    return found == sharers.end() ? nullptr : *found;
}

bool file_layout::has_uncommitted_by_nfs() const noexcept
{
    return std::ranges::any_of(sharers, [](const auto& each) {
        return each->plain->uncommitted() != 0 && !each->plain->has_lost_locks();
    });
}

task<result<void>> file_layout::commit_by_nfs()
{
    const std::vector<std::shared_ptr<layout_sharer>> all = sharers;
    for (const auto& each : all) {
        if (each->plain->has_lost_locks())
            continue; // it sends nothing again
        auto committed = co_await each->plain->commit();
        if (!committed)
            co_return committed.error();
    }
    co_return result<void>();
}

task<result<void>> file_layout::close(std::shared_ptr<layout_sharer> one)
{
    one->is_closing = true;
    auto committed = co_await commit();
    if (committed && is_last(*one)) {
        auto gone = co_await give_back();
        if (!gone && gone.error() != std::errc::operation_canceled)
            committed = gone.error();
    }
    // What it wrote by NFS is looked for among those that share the file, before others write by RDMA.
    auto by_nfs = co_await one->plain->commit();
    if (committed)
        committed = by_nfs;
    if (committed && std::exchange(one->has_lost_bytes, false))
        committed = locks_are_lost;
    // What is left can't be written any more.
    leave(one);
    if (is_giving_back) {
        // It may be writing by this one.
        left.push_back(one);
        const bool is_over = co_await one->closed.wait();
        if (!committed)
            co_return committed.error();
        if (!is_over)
            co_return no_longer_waited_for;
        co_return one->closing;
    }
    if (!sharers.empty()) {
        // Whoever writes again what was lost may do so by this one.
        const bool mine = co_await turn.acquire();
        if (!mine)
            co_return committed ? no_longer_waited_for : committed.error();
        turn.release();
    }
    auto closed = co_await one->plain->close();
    if (!committed)
        co_return committed.error();
    co_return closed;
}

task<void> file_layout::close_those_left()
{
    while (!left.empty()) {
        const std::shared_ptr<layout_sharer> one = left.back();
        left.pop_back();
        // Whoever writes again what was lost may do so by this one.
        if (co_await turn.acquire())
            turn.release();
        one->closing = co_await one->plain->close();
        one->closed.set();
    }
}

} // namespace verbena::nfs::v4::pnfs
