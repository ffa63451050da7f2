// SPDX-License-Identifier: Apache-2.0
#include "limiter.hpp"

#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

class limiting final : public limit_filter {
public:
    limiting(std::unique_ptr<storage::file_backend> below, const limit_options& options)
        : limit_filter(std::move(below)),
          of_operations_(options.client_operations != 0 || options.export_operations != 0),
          of_bytes_(options.client_bytes != 0 || options.export_bytes != 0),
          limiter_(options)
    {
    }

    limit_counters counters() const noexcept override { return limiter_.counters(); }

    /// What may pass at once is sent from a file. What has to wait does so in read().
    task<result<storage::located_read>> locate(const storage::request& r, const storage::handle& file,
                                               std::uint64_t offset, std::uint32_t length) override
    {
        if (!gates(storage::operation::read))
            return below().locate(r, file, offset, length);
        return locate_within_limits(r, file, offset, length);
    }

private:
    bool gates(storage::operation op) const noexcept override
    {
        return of_operations_ ||
               (of_bytes_ && (op == storage::operation::read || op == storage::operation::write));
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
                                                             std::uint64_t offset, std::uint32_t length)
    {
        const task_context& context = co_await current_context();
        auto there = co_await below().locate(r, file, offset, length);
        if (!there || !there->here ||
            !limiter_.try_enter(r.client, there->read.count, context.shard->clock().now()))
            co_return storage::located_read();
        co_return std::move(there);
    }

    const bool of_operations_;
    const bool of_bytes_;
    limiter limiter_;
};

struct limit_rule {
    std::uint64_t value;
    std::uint64_t least;
    std::uint64_t most;
    const char* broken;
};

} // namespace

result<std::unique_ptr<limit_filter>> open_limit(std::unique_ptr<storage::file_backend> below,
                                                 const limit_options& options)
{
    const auto burst = options.burst.count();
    const limit_rule rules[] = {
        {options.client_operations, 0, most_limited_operations,
         "limit, client_operations: over 1000000000 a second; take less, or 0 for no limit"},
        {options.export_operations, 0, most_limited_operations,
         "limit, export_operations: over 1000000000 a second; take less, or 0 for no limit"},
        {options.client_bytes == 0 ? least_limited_bytes : options.client_bytes, least_limited_bytes,
         most_limited_bytes,
         "limit, client_bytes: not within 1024 to 1000000000000 a second; take a number within, or 0 for no "
         "limit"},
        {options.export_bytes == 0 ? least_limited_bytes : options.export_bytes, least_limited_bytes,
         most_limited_bytes,
         "limit, export_bytes: not within 1024 to 1000000000000 a second; take a number within, or 0 for no "
         "limit"},
        {burst < 0 ? 0 : std::uint64_t(burst), 1, std::uint64_t(longest_burst.count()),
         "limit, burst: not within 1 to 60000 ms; take a time within"},
        {options.client_queue, 0, most_limited_waiting,
         "limit, client_queue: over 1048576 operations; take less"},
        {options.export_queue, 0, most_limited_waiting,
         "limit, export_queue: over 1048576 operations; take less"},
        {options.clients, 1, most_limited_clients,
         "limit, clients: not within 1 to 1048576; take a number within"},
    };
    for (const limit_rule& r : rules) {
        if (r.value < r.least || r.value > r.most)
            return error(std::errc::invalid_argument, r.broken, r.value);
    }
    return std::unique_ptr<limit_filter>(std::make_unique<limiting>(std::move(below), options));
}

} // namespace verbena::filters
