// SPDX-License-Identifier: Apache-2.0
#include "limiter.hpp"

#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

class limiting_block final : public block_limit_filter {
public:
    limiting_block(std::unique_ptr<storage::block_backend> below, const limit_options& options)
        : block_limit_filter(std::move(below)),
          of_operations_(options.client_operations != 0 || options.total_operations != 0),
          of_bytes_(options.client_bytes != 0 || options.total_bytes != 0),
          limiter_(options)
    {
    }

    limit_counters counters() const noexcept override { return limiter_.counters(); }

private:
    bool gates(storage::block_operation op) const noexcept override
    {
        using enum storage::block_operation;
        return of_operations_ || (of_bytes_ && (op == read || op == write || op == write_zeroes));
    }
    // Also where no client has a limit of its own: at the device's they take turns.
    bool tells_clients_apart() const noexcept override { return of_operations_ || of_bytes_; }
    task<result<void>> enter(const storage::block_call& c) override
    {
        const limiter::outcome how = co_await limiter_.enter(c.client, c.bytes());
        switch (how) {
        case limiter::outcome::refused:
            co_return error::from_errno(EBUSY,
                                        "too many operations wait for their client's or device's limit");
        case limiter::outcome::cancelled:
            co_return error::from_errno(ECANCELED,
                                        "stopped while it waited for its client's or device's limit");
        default: co_return result<void>();
        }
    }
    void failed_below(const storage::block_call& c) noexcept override
    {
        if (of_bytes_ && c.bytes() != 0)
            limiter_.give_back(c.client, c.bytes());
    }

    const bool of_operations_;
    const bool of_bytes_;
    limiter limiter_;
};

} // namespace

result<std::unique_ptr<block_limit_filter>> open_limit(std::unique_ptr<storage::block_backend> below,
                                                       const limit_options& options)
{
    if (const auto good = limiter::check(options); !good)
        return good.error();
    return std::unique_ptr<block_limit_filter>(std::make_unique<limiting_block>(std::move(below), options));
}

} // namespace verbena::filters
