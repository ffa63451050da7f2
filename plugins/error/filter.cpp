// SPDX-License-Identifier: Apache-2.0
#include "../seeded_series.hpp"

#include <verbena/plugins/error.hpp>

#include <atomic>
#include <string>
#include <unistd.h>
#include <utility>

namespace verbena::filters {

namespace {

bool exists(const std::string& path) noexcept { return ::access(path.c_str(), F_OK) == 0; }

class failing final : public error_filter {
public:
    failing(std::unique_ptr<storage::file_backend> below, const error_options& options, blocking_pool& pool)
        : error_filter(std::move(below)),
          operations_(options.operations),
          failure_(options.code, "injected by the filter error"),
          probability_(options.probability),
          every_(options.every),
          path_(options.while_exists),
          interval_(options.look_interval),
          pool_(pool),
          draws_(options.seed),
          present_(path_.empty())
    {
    }

    error_counters counters() const noexcept override
    {
        error_counters now;
        now.candidates = candidates_.load(relaxed);
        now.injected = injected_.load(relaxed);
        now.looks = looks_.load(relaxed);
        return now;
    }

private:
    static constexpr auto relaxed = std::memory_order_relaxed;

    bool gates(storage::operation op) const noexcept override
    {
        return (probability_ > 0 || every_ > 0) && operations_.contains(op);
    }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        if (!path_.empty())
            co_await look();
        if (present_.load(relaxed) && fails()) {
            injected_.fetch_add(1, relaxed);
            co_return failure_;
        }
        co_return result<void>();
    }

    bool fails() noexcept
    {
        const std::uint64_t n = candidates_.fetch_add(1, relaxed) + 1;
        if (every_ > 0)
            return n % every_ == 0;
        // 53 bits are what a double holds: below 1 for sure.
        return double(draws_.next() >> 11) * 0x1p-53 < probability_;
    }

    task<void> look()
    {
        const task_context& context = co_await current_context();
        const clock_source& clock = context.shard->clock();
        if (clock.now().time_since_epoch().count() < good_until_.load(relaxed))
            co_return;
        // One at a time: where a look hangs, one operation hangs with it.
        if (looking_.exchange(true, std::memory_order_acquire))
            co_return;
        auto find = [this]() noexcept { return exists(path_); };
        const bool found = co_await pool_.run(std::move(find));
        looks_.fetch_add(1, relaxed);
        present_.store(found, relaxed);
        good_until_.store((clock.now() + interval_).time_since_epoch().count(), relaxed);
        looking_.store(false, std::memory_order_release);
    }

    const storage::operation_set operations_;
    const error failure_;
    const double probability_;
    const std::uint64_t every_;
    const std::string path_;
    const duration interval_;
    blocking_pool& pool_;
    seeded_series draws_;
    std::atomic<bool> present_;
    std::atomic<bool> looking_{false};
    std::atomic<duration::rep> good_until_{0};
    std::atomic<std::uint64_t> candidates_{0};
    std::atomic<std::uint64_t> injected_{0};
    std::atomic<std::uint64_t> looks_{0};
};

} // namespace

result<std::unique_ptr<error_filter>> open_error(std::unique_ptr<storage::file_backend> below,
                                                 const error_options& options, blocking_pool& pool)
{
    if (!options.code)
        return error(std::errc::invalid_argument, "error, code: 0 means success; take an error, as EIO");
    // Written so that NaN is refused.
    if (!(options.probability >= 0 && options.probability <= 1))
        return error(std::errc::invalid_argument,
                     "error, probability: not within 0 to 1; take 0.01 for one in a hundred");
    if (options.probability > 0 && options.every > 0)
        return error(
            std::errc::invalid_argument,
            "error, every: stands beside probability, and only one can decide; leave out one of them",
            options.every);
    if (options.look_interval < duration::zero() || options.look_interval > longest_look_interval)
        return error(std::errc::invalid_argument,
                     "error, look_interval: not within 0 to an hour; take a time within");
    return std::unique_ptr<error_filter>(std::make_unique<failing>(std::move(below), options, pool));
}

result<std::error_code> parse_error(std::string_view name)
{
    static constexpr std::pair<std::string_view, int> known[] = {
        {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EFBIG", EFBIG},   {"EINVAL", EINVAL},
        {"EIO", EIO},       {"ENOENT", ENOENT}, {"ENOSPC", ENOSPC}, {"ENXIO", ENXIO},
        {"EPERM", EPERM},   {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"ETIMEDOUT", ETIMEDOUT},
    };
    for (const auto& [text, number] : known) {
        if (name == text)
            return std::error_code(number, std::system_category());
    }
    if (name == "delayed")
        return make_error_code(storage::errc::delayed);
    return error(std::errc::invalid_argument,
                 "error, code: no such name; take EACCES, EDQUOT, EFBIG, EINVAL, EIO, ENOENT, ENOSPC, ENXIO, "
                 "EPERM, EROFS, ESTALE, ETIMEDOUT or delayed");
}

} // namespace verbena::filters
