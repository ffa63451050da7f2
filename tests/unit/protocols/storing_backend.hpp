// SPDX-License-Identifier: Apache-2.0
// A back end whose files peers reach by stores, as those on a disk: the disk may keep its callers waiting, and fail.
#pragma once

#include <verbena/core/verbs/byte_store.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <unistd.h>
#include <utility>

namespace verbena::test {

/// Files of `below`, which have no other store, and outlive this.
class storing_backend final : public storage::forwarding_backend {
public:
    explicit storing_backend(storage::file_backend& below)
        : forwarding_backend(below, storage::filter_bytes::are_those_below), info_(below.info())
    {
        info_.map_block = 4096;
        info_.maps_stores = true;
    }

    /// Before each access; an errno value that it is to fail with, or 0.
    std::function<task<int>(bool writes)> disk;
    std::atomic<std::size_t> stores{0}; ///< that somebody has
    std::atomic<std::uint64_t> reads{0}, writes{0};
    /// Accesses that wait for the disk are never made: the process that asked for them is gone.
    void lose_accesses() { ++process_; }
    /// The next commit() loses what was written, and another one hears of it: an errno value.
    std::atomic<int> lost_by_commit{0};

    const storage::filesystem_info& info() const noexcept override { return info_; }
    task<result<storage::mapping>> map(const storage::request& r, const storage::handle& file,
                                       std::uint64_t offset, std::uint64_t length,
                                       storage::map_use use) override
    {
        const bool writes = use != storage::map_use::read;
        const unsigned wanted = R_OK | (writes ? unsigned(W_OK) : 0U);
        const auto has = co_await below().access(r, file, wanted);
        if (!has)
            co_return has.error();
        if (*has != wanted)
            co_return error::from_errno(EACCES, "map");
        const auto attrs = co_await below().getattr(r, file);
        if (!attrs)
            co_return attrs.error();
        storage::mapping out;
        out.attrs = *attrs;
        out.length = writes ? length : std::min(length, attrs->size - std::min(attrs->size, offset));
        if (out.length != 0)
            out.store = std::make_shared<store>(*this, r, file);
        co_return out;
    }

    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override
    {
        if (const int failed = lost_by_commit.exchange(0); failed != 0)
            lost = failed;
        return below().commit(r, file, offset, count);
    }

private:
    class store final : public verbs::byte_store {
    public:
        store(storing_backend& of, const storage::request& r, const storage::handle& file)
            : of_(of), file_(file)
        {
            request_.who = r.who;
            ++of_.stores;
        }
        ~store() override { --of_.stores; }
        task<result<void>> read(std::uint64_t offset, std::span<std::byte> out) override
        {
            ++of_.reads;
            int failed = 0;
            if (of_.disk)
                failed = co_await of_.disk(false);
            if (offset < lost_to_ && lost_from_ < offset + out.size())
                failed = EIO;
            if (failed != 0)
                co_return error::from_errno(failed, "read");
            while (!out.empty()) {
                const auto got = co_await of_.below().read(request_, file_, offset, out);
                if (!got)
                    co_return got.error();
                if (got->count == 0)
                    break;
                offset += got->count;
                out = out.subspan(got->count);
            }
            std::ranges::fill(out, std::byte());
            co_return result<void>();
        }
        task<result<void>> write(std::uint64_t offset, std::span<const std::byte> data) override
        {
            ++of_.writes;
            int failed = 0;
            const std::uint64_t process = of_.process_;
            if (of_.disk)
                failed = co_await of_.disk(true);
            if (process != of_.process_)
                co_return error(std::errc::operation_canceled, "a write of a process that is gone");
            while (failed == 0 && !data.empty()) {
                const auto done = co_await of_.below().write(request_, file_, offset, std::span(&data, 1),
                                                             storage::stability::unstable);
                failed = done ? 0 : done.error().errno_value();
                const std::uint32_t n = done ? done->count : 0;
                offset += n;
                data = data.subspan(n);
            }
            if (failed == 0)
                co_return result<void>();
            lost_from_ = std::min(lost_from_, offset);
            lost_to_ = std::max(lost_to_, offset + data.size());
            int none = 0;
            failed_.compare_exchange_strong(none, failed);
            co_return error::from_errno(failed, "write");
        }
        std::error_code write_failure() const noexcept override
        {
            const int failed = failed_ != 0 ? failed_ : of_.lost;
            return failed != 0 ? std::error_code(failed, std::system_category()) : std::error_code();
        }

    private:
        storing_backend& of_;
        storage::request request_;
        const storage::handle file_;
        std::atomic<int> failed_{0};
        std::uint64_t lost_from_ = UINT64_MAX, lost_to_ = 0;
    };

    storage::filesystem_info info_;
    std::atomic<int> lost{0};
    std::atomic<std::uint64_t> process_{0};
};

} // namespace verbena::test
