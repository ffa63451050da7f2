// SPDX-License-Identifier: Apache-2.0
#include "delayer.hpp"

#include <utility>

namespace verbena::filters {

namespace {

using group = delayer::group;

group group_of(storage::operation op) noexcept
{
    switch (op) {
    case storage::operation::read: return group::read;
    case storage::operation::write:
    case storage::operation::allocate:
    case storage::operation::deallocate:
    case storage::operation::copy:
    case storage::operation::clone: return group::write;
    case storage::operation::commit: return group::sync;
    default: return group::metadata;
    }
}

class delaying final : public delay_filter {
public:
    delaying(std::unique_ptr<storage::file_backend> below, const delay_options& options)
        : delay_filter(std::move(below)), delayer_(options)
    {
    }
    delay_counters counters() const noexcept override { return delayer_.counters(); }

private:
    bool gates(storage::operation op) const noexcept override { return delayer_.delays(group_of(op)); }
    task<result<void>> enter(storage::operation op, const storage::request&, std::uint64_t) override
    {
        return delayer_.wait(group_of(op));
    }

    delayer delayer_;
};

} // namespace

result<std::unique_ptr<delay_filter>> open_delay(std::unique_ptr<storage::file_backend> below,
                                                 const delay_options& options)
{
    if (const auto good = delayer::check(options); !good)
        return good.error();
    return std::unique_ptr<delay_filter>(std::make_unique<delaying>(std::move(below), options));
}

} // namespace verbena::filters
