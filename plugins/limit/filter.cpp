// SPDX-License-Identifier: Apache-2.0
#include "limiter.hpp"

#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

// A clone shares what is there, and what is allocated or deallocated is not moved: a terabyte of room would be hours of everybody's data.
constexpr storage::operation_set counted_by_bytes =
    storage::operation_set(storage::operation::read) | storage::operation::write | storage::operation::copy;

class limiting final : public limit_filter {
public:
    limiting(std::unique_ptr<storage::file_backend> below, const limit_options& options)
        : limit_filter(std::move(below)),
          of_operations_(options.client_operations != 0 || options.total_operations != 0),
          of_bytes_(options.client_bytes != 0 || options.total_bytes != 0),
          limiter_(options)
    {
    }

    limit_counters counters() const noexcept override { return limiter_.counters(); }

    /// A read that may pass at once is sent from where its bytes lie. A read that has to wait does so in read().
    task<result<storage::located_read>> locate(const storage::request& r, const storage::handle& file,
                                               std::uint64_t offset, std::uint32_t length,
                                               storage::locatable where) override
    {
        if (!gates(storage::operation::read))
            return below().locate(r, file, offset, length, where);
        return locate_within_limits(r, file, offset, length, where);
    }

private:
    bool gates(storage::operation op) const noexcept override
    {
        return of_operations_ || (of_bytes_ && counted_by_bytes.contains(op));
    }
    task<result<void>> enter(storage::operation, const storage::request& r, std::uint64_t bytes) override
    {
        const limiter::outcome how = co_await limiter_.enter(r.client, bytes);
        switch (how) {
        case limiter::outcome::refused:
            co_return error(storage::errc::delayed,
                            "too many operations wait for their client's or export's limit");
        case limiter::outcome::cancelled:
            co_return error::from_errno(ECANCELED,
                                        "stopped while it waited for its client's or export's limit");
        default: co_return result<void>();
        }
    }
    void leave(const storage::request& r, std::uint64_t asked, std::uint64_t moved) noexcept override
    {
        if (of_bytes_ && moved < asked)
            limiter_.give_back(r.client, asked - moved);
    }
    task<result<storage::located_read>> locate_within_limits(const storage::request& r,
                                                             const storage::handle& file,
                                                             std::uint64_t offset, std::uint32_t length,
                                                             storage::locatable where)
    {
        const task_context& context = co_await current_context();
        auto there = co_await below().locate(r, file, offset, length, where);
        if (!there || !there->here ||
            !limiter_.try_enter(r.client, there->read.count, context.shard->clock().now()))
            co_return storage::located_read();
        co_return std::move(there);
    }

    const bool of_operations_;
    const bool of_bytes_;
    limiter limiter_;
};

} // namespace

result<std::unique_ptr<limit_filter>> open_limit(std::unique_ptr<storage::file_backend> below,
                                                 const limit_options& options)
{
    if (const auto good = limiter::check(options); !good)
        return good.error();
    return std::unique_ptr<limit_filter>(std::make_unique<limiting>(std::move(below), options));
}

} // namespace verbena::filters
