// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/written_file.hpp>

#include <algorithm>
#include <optional>

namespace verbena::nfs {
namespace {

class release_at_end {
public:
    explicit release_at_end(semaphore& s) noexcept : semaphore_(s) {}
    release_at_end(const release_at_end&) = delete;
    ~release_at_end() { semaphore_.release(); }

private:
    semaphore& semaphore_;
};

const error stopped(std::errc::operation_canceled, "a write or commit of a file");

} // namespace

rpc::payload slice(const rpc::payload& data, std::size_t begin, std::size_t end)
{
    rpc::payload part;
    std::size_t at = 0;
    for (std::size_t i = 0; i < data.pieces().size(); ++i) {
        const auto piece = data.pieces()[i];
        const std::size_t from = std::max(begin, at);
        const std::size_t to = std::min(end, at + piece.size());
        if (from < to)
            part.append(data.owner(i).share(), piece.subspan(from - at, to - from));
        at += piece.size();
    }
    return part;
}

rpc::payload share(const rpc::payload& data) { return slice(data, 0, data.size()); }

// A write in progress.
class written_file::writing {
public:
    explicit writing(written_file& f) noexcept : file_(f)
    {
        ++file_.writing_;
        file_.quiet_.reset();
    }
    writing(const writing&) = delete;
    ~writing()
    {
        if (--file_.writing_ == 0)
            file_.quiet_.set();
    }

private:
    written_file& file_;
};

// While it lives no write begins.
class written_file::no_writes {
public:
    explicit no_writes(written_file& f) noexcept : file_(f)
    {
        file_.resending_ = true;
        file_.resent_all_.reset();
    }
    no_writes(const no_writes&) = delete;
    ~no_writes()
    {
        file_.resending_ = false;
        file_.resent_all_.set();
    }

private:
    written_file& file_;
};

task<result<void>> written_file::write(std::uint64_t offset, rpc::payload data)
{
    if (uncommitted_ + data.size() > max_uncommitted && uncommitted_ != 0) {
        auto committed = co_await commit();
        if (!committed)
            co_return committed.error();
    }
    while (resending_) {
        const bool goes_on = co_await resent_all_.wait();
        if (!goes_on)
            co_return stopped;
    }
    const writing now(*this);
    for (std::size_t done = 0; done < data.size();) {
        const std::size_t n = std::min<std::size_t>(data.size() - done, most_at_once());
        rpc::payload part = slice(data, done, done + n);
        auto written = co_await send(offset + done, std::move(part));
        if (!written)
            co_return written.error();
        // Stable data may lie on what is still unstable, and would be overwritten if that were sent again alone.
        if (written->committed == v3::stable_how::unstable || !unstable_.empty()) {
            unstable_.emplace_back(written_++, offset + done, slice(data, done, done + written->count),
                                   written->verifier);
            uncommitted_ += written->count;
        }
        done += written->count;
    }
    co_return result<void>();
}

task<result<void>> written_file::commit()
{
    const bool mine = co_await turn_.acquire();
    if (!mine)
        co_return stopped;
    const release_at_end held(turn_);
    unsigned losses = 0;
    while (!unstable_.empty()) {
        const std::size_t covered = unstable_.size();
        auto verifier = co_await sync();
        if (!verifier)
            co_return verifier.error();
        const auto begin = unstable_.begin();
        const auto end = begin + static_cast<std::ptrdiff_t>(covered);
        if (std::all_of(begin, end, [&](const unstable& u) { return !u.lost && u.verifier == *verifier; })) {
            for (auto u = begin; u != end; ++u)
                uncommitted_ -= u->data.size();
            // What others wrote meanwhile is for their own commit().
            unstable_.erase(begin, end);
            break;
        }
        const no_writes until_resent(*this);
        while (writing_ != 0) {
            const bool is_quiet = co_await quiet_.wait();
            if (!is_quiet)
                co_return stopped;
        }
        sort_out(covered, *verifier);
        auto again = co_await send_again();
        if (!again)
            co_return again.error(); // a later commit() finds the rest
        if (++losses > max_resends)
            co_return error(std::errc::io_error, "the server keeps losing what was written", uncommitted_);
    }
    co_return result<void>();
}

task<result<std::size_t>> written_file::drop_uncommitted()
{
    const bool mine = co_await turn_.acquire();
    if (!mine)
        co_return stopped;
    const release_at_end held(turn_);
    const no_writes until_dropped(*this);
    while (writing_ != 0) {
        const bool is_quiet = co_await quiet_.wait();
        if (!is_quiet)
            co_return stopped;
    }
    unstable_.clear();
    co_return std::exchange(uncommitted_, 0);
}

void written_file::committed(std::uint64_t before, const v3::writeverf3& verifier) noexcept
{
    if (!turn_.try_acquire())
        return;
    const release_at_end held(turn_);
    const auto end = std::ranges::find_if(unstable_, [&](const unstable& u) { return u.number >= before; });
    if (!std::all_of(unstable_.begin(), end,
                     [&](const unstable& u) { return !u.lost && u.verifier == verifier; }))
        return;
    for (auto u = unstable_.begin(); u != end; ++u)
        uncommitted_ -= u->data.size();
    unstable_.erase(unstable_.begin(), end);
}

// Forgets those of the first `covered` that the COMMIT answered by `verifier` made stable, and marks what is to be sent again.
void written_file::sort_out(std::size_t covered, const v3::writeverf3& verifier)
{
    // Whatever was written over lost bytes must go out behind them. One range around all lost ones is enough: a file that
    // was written from its beginning to its end has nothing else in it.
    std::uint64_t lost_begin = UINT64_MAX;
    std::uint64_t lost_end = 0;
    std::size_t index = 0;
    std::erase_if(unstable_, [&](unstable& u) {
        const bool is_covered = index++ < covered;
        if (u.verifier != verifier || (u.offset < lost_end && lost_begin < u.end()))
            u.lost = true;
        if (u.lost) {
            lost_begin = std::min(lost_begin, u.offset);
            lost_end = std::max(lost_end, u.end());
            return false;
        }
        if (is_covered)
            uncommitted_ -= u.data.size();
        return is_covered;
    });
}

// The oldest first, so that of overlapping ones the newest lands last.
task<result<void>> written_file::send_again()
{
    for (std::size_t i = 0; i < unstable_.size(); ++i) {
        if (!unstable_[i].lost)
            continue;
        auto again = co_await send_again(i);
        if (!again)
            co_return again.error();
    }
    co_return result<void>();
}

task<result<void>> written_file::send_again(std::size_t index)
{
    unstable& u = unstable_[index]; // nothing else changes the list meanwhile
    std::optional<v3::writeverf3> first;
    for (std::size_t done = 0; done < u.data.size();) {
        rpc::payload rest = slice(u.data, done, u.data.size());
        auto again = co_await send(u.offset + done, std::move(rest));
        if (!again)
            co_return again.error();
        resent_ += again->count;
        done += again->count;
        // If the server lost some of it again, a COMMIT differs from the first.
        if (!first)
            first = again->verifier;
    }
    if (first)
        u.verifier = *first;
    u.number = written_++; // a COMMIT that was on its way does not cover it
    u.lost = false;
    co_return result<void>();
}

} // namespace verbena::nfs
