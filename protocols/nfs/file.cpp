// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/file.hpp>

#include <algorithm>

namespace verbena::nfs {
namespace {

// Bytes [begin, end) of `data`, sharing its leases.
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

} // namespace

task<result<void>> file::write(std::uint64_t offset, rpc::payload data)
{
    if (uncommitted_ + data.size() > max_uncommitted && uncommitted_ != 0) {
        auto committed = co_await commit();
        if (!committed)
            co_return committed.error();
    }
    for (std::size_t done = 0; done < data.size();) {
        const std::size_t n = std::min<std::size_t>(data.size() - done, client_.limits().write);
        rpc::payload part = slice(data, done, done + n);
        auto written =
            co_await client_.write(node_.handle, offset + done, std::move(part), v3::stable_how::unstable);
        if (!written)
            co_return written.error();
        if (written->committed == v3::stable_how::unstable) {
            unstable_.emplace_back(offset + done, slice(data, done, done + written->count),
                                   written->verifier);
            uncommitted_ += written->count;
        }
        done += written->count;
    }
    co_return result<void>();
}

task<result<void>> file::commit()
{
    unsigned losses = 0;
    while (!unstable_.empty()) {
        std::vector<unstable> batch = std::move(unstable_);
        unstable_.clear();
        const auto resent_before = resent_;
        auto committed = co_await commit_once(batch);
        if (!committed) {
            // A later commit() is to find it again.
            std::ranges::move(batch, std::back_inserter(unstable_));
            co_return committed.error();
        }
        // What others wrote meanwhile is for their own commit(); only a loss asks for another round.
        if (resent_ == resent_before)
            break;
        if (++losses > max_resends)
            co_return error(std::errc::io_error, "the server keeps losing what was written", uncommitted_);
    }
    co_return result<void>();
}

// Commits `batch`; what the server lost goes back to unstable_ by being written again.
task<result<void>> file::commit_once(std::vector<unstable>& batch)
{
    auto verifier = co_await client_.commit(node_.handle, 0, 0); // the whole file
    if (!verifier)
        co_return verifier.error();
    while (!batch.empty()) {
        unstable& last = batch.back();
        const std::size_t size = last.data.size();
        if (last.verifier != *verifier) {
            rpc::payload copy = slice(last.data, 0, size);
            auto again =
                co_await client_.write(node_.handle, last.offset, std::move(copy), v3::stable_how::unstable);
            if (!again)
                co_return again.error();
            resent_ += again->count;
            if (again->committed == v3::stable_how::unstable)
                unstable_.emplace_back(last.offset, slice(last.data, 0, again->count), again->verifier);
            else
                uncommitted_ -= again->count;
            if (again->count < size) {
                last.data = slice(last.data, again->count, size);
                last.offset += again->count;
                continue;
            }
        } else {
            uncommitted_ -= size;
        }
        batch.pop_back();
    }
    co_return result<void>();
}

} // namespace verbena::nfs
