// SPDX-License-Identifier: Apache-2.0
#include "failure_choice.hpp"

#include <verbena/core/task/sleep.hpp>

#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

class failing_block final : public block_error_filter {
public:
    failing_block(std::unique_ptr<storage::block_backend> below, const block_error_options& options,
                  blocking_pool& pool)
        : block_error_filter(std::move(below)),
          operations_(options.operations),
          failure_(options.code, "injected by the filter error"),
          fails_(bool(options.code)),
          half_(options.half),
          stall_(options.stall),
          choice_(options, pool)
    {
    }
    error_counters counters() const noexcept override { return choice_.counters(); }

private:
    bool gates(storage::block_operation op) const noexcept override
    {
        return choice_.may_fail() && operations_.contains(op);
    }
    task<result<void>> enter(const storage::block_call& c) override
    {
        const bool chosen = co_await choice_.is_chosen();
        if (!chosen)
            co_return result<void>();
        if (stall_ > duration::zero()) {
            const bool came = co_await sleep_for(stall_);
            if (!came)
                co_return error::from_errno(ECANCELED, "stopped while the filter error held it");
        }
        if (!fails_)
            co_return result<void>();
        const std::uint64_t part = c.length / c.below.properties().block_size / 2;
        if (half_ && part != 0) {
            // It fails whatever comes of that.
            const storage::block_call begun = c.first(part * c.below.properties().block_size);
            (void)co_await begun.run();
        }
        co_return failure_;
    }

    const storage::block_operation_set operations_;
    const error failure_;
    const bool fails_;
    const bool half_;
    const duration stall_;
    failure_choice choice_;
};

} // namespace

result<std::unique_ptr<block_error_filter>> open_error(std::unique_ptr<storage::block_backend> below,
                                                       const block_error_options& options,
                                                       blocking_pool& pool)
{
    if (options.stall < duration::zero() || options.stall > longest_stall)
        return error(std::errc::invalid_argument,
                     "error, stall: not within 0 to an hour; take a time within");
    if (!options.code && options.stall == duration::zero())
        return error(std::errc::invalid_argument,
                     "error, code: 0 means success, which needs a stall; take an error, as EIO");
    if (const auto good = failure_choice::check(options); !good)
        return good.error();
    return std::unique_ptr<block_error_filter>(
        std::make_unique<failing_block>(std::move(below), options, pool));
}

} // namespace verbena::filters
