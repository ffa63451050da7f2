// SPDX-License-Identifier: Apache-2.0
#include "delayer.hpp"

#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

using group = delayer::group;

group group_of(storage::block_operation op) noexcept
{
    switch (op) {
    case storage::block_operation::read: return group::read;
    case storage::block_operation::write: return group::write;
    case storage::block_operation::flush: return group::sync;
    default: return group::metadata;
    }
}

class delaying_block final : public block_delay_filter {
public:
    delaying_block(std::unique_ptr<storage::block_backend> below, const delay_options& options)
        : block_delay_filter(std::move(below)), delayer_(options)
    {
    }
    delay_counters counters() const noexcept override { return delayer_.counters(); }

private:
    bool gates(storage::block_operation op) const noexcept override { return delayer_.delays(group_of(op)); }
    task<result<void>> enter(const storage::block_call& c) override
    {
        auto waited = co_await delayer_.wait(group_of(c.operation));
        if (!waited && waited.error() == storage::errc::delayed) // which only files have a word for
            co_return error::from_errno(EBUSY, "as many operations as may wait are being delayed");
        co_return waited;
    }

    delayer delayer_;
};

} // namespace

result<std::unique_ptr<block_delay_filter>> open_delay(std::unique_ptr<storage::block_backend> below,
                                                       const delay_options& options)
{
    if (const auto good = delayer::check(options); !good)
        return good.error();
    return std::unique_ptr<block_delay_filter>(std::make_unique<delaying_block>(std::move(below), options));
}

} // namespace verbena::filters
